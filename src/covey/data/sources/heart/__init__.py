"""Heart disease in four hospitals, 920 patients: shipped with covey (heart_disease.csv, UCI, CC BY 4.0), and read here."""
