"""Observers with a vantage point. Each sees exactly what that party received and ends with a finding beside its controls.
No attack reads the truth before it is scored.
"""

from covey.attacks.acquisition import Acquisition
from covey.attacks.category.category import CategoryInference
from covey.attacks.linkage.linkage import BlockLinkage, GraphLinkage, Linkage, Naming, NamingByHistogram, ProfileLinkage
from covey.attacks.membership.features import FeatureMembership, RatioMembership, ScaledMembership
from covey.attacks.membership.loss import LossMembership
from covey.attacks.preference.identity import A1, A1Bayes, A1Intersection, A1Prior
from covey.attacks.preference.model_sensitivity import A2, Coalition
from covey.attacks.property.active import ActivePropertyInference
from covey.attacks.property.passive import PropertyInference

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
