"""Observers with a vantage point. Each sees exactly what that party received and ends with a finding beside its controls.
No attack reads the truth before it is scored.
"""

from covey.attacks.acquisition import Acquisition
from covey.attacks.category import CategoryInference
from covey.attacks.linkage import BlockLinkage, GraphLinkage, Linkage, Naming, NamingByHistogram, ProfileLinkage
from covey.attacks.membership import FeatureMembership, RatioMembership, ScaledMembership
from covey.attacks.membership_loss import LossMembership
from covey.attacks.model_sensitivity import A2, Coalition
from covey.attacks.preference import A1, A1Bayes, A1Intersection, A1Prior
from covey.attacks.property import PropertyInference
from covey.attacks.property_active import ActivePropertyInference

ATTACKS: dict[str, type] = {
    cls.name: cls
    for cls in (
        A1,
        A1Prior,
        A1Intersection,
        A1Bayes,
        A2,
        Coalition,
        FeatureMembership,
        ScaledMembership,
        RatioMembership,
        LossMembership,
        PropertyInference,
        ActivePropertyInference,
        CategoryInference,
        Acquisition,
        Naming,
        NamingByHistogram,
        Linkage,
        ProfileLinkage,
        GraphLinkage,
        BlockLinkage,
    )
}
