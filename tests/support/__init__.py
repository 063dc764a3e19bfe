"""What tests of several rooms share: made-up runs and audits, a browser, parties of a deployment, clients worked out by hand."""
