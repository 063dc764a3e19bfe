"""The figures that Kim et al. (RAID 2023) print: Tables 4 to 9 (Table 3 is four rows of Table 9) and the means of Fig. 4."""

from __future__ import annotations

TASKS = ("A", "B", "C", "D", "E")
SOME = (5, 10, 15, 20)  # clients in Tables 3 to 8


def _rows(text: str) -> dict[int, list[float]]:
    """Lines of numbers, the first of each the number of clients."""
    lines = [line.split() for line in text.strip().splitlines()]
    return {int(first): [float(v) for v in rest] for first, *rest in lines}


_TABLE9 = _rows("""
3  .873 .9423 .9644 .9885 .9856 .9903 .5845 .7756 .6736 .8869
4  .8158 .9689 .8666 .9898 .9622 .984 .6709 .7491 .3793 .8119
5  .7326 .9424 .8154 .9684 .9297 .9769 .5302 .7570 .5764 .6937
6  .6815 .9371 .7587 .9587 .8544 .9732 .5422 .7320 .4495 .6570
7  .6695 .9167 .7693 .9569 .8045 .9578 .5365 .6976 .4614 .6502
8  .6369 .9211 .6861 .9606 .7797 .9421 .4045 .7574 .5049 .5437
9  .6589 .917 .6517 .903 .7451 .9095 .4883 .6217 .3605 .4670
10 .5957 .9009 .6145 .9371 .8429 .9084 .4421 .5975 .3051 .4763
11 .5942 .8703 .6233 .903 .8093 .9127 .4302 .6563 .2203 .4715
12 .5931 .8666 .6016 .8735 .7121 .8742 .4667 .6096 .2196 .4369
13 .5527 .8523 .5761 .8594 .7158 .8904 .5575 .5529 .3921 .4125
14 .5545 .8402 .5925 .8744 .7282 .8659 .5047 .5943 .3426 .4392
15 .5488 .8284 .574 .8265 .7934 .8354 .4816 .6094 .5526 .4064
16 .5503 .7959 .5746 .8228 .7179 .8136 .4632 .5798 .3483 .4125
17 .5303 .7754 .5666 .7819 .6376 .8112 .4343 .6150 .3435 .3601
18 .5078 .8187 .5492 .8063 .7103 .752 .5038 .5614 .5343 .3653
19 .5462 .7686 .5557 .8413 .7118 .8016 .4844 .4848 .4151 .4069
20 .5367 .7414 .5534 .7952 .6731 .8002 .4401 .5232 .4933 .3808
""")
PASSIVE = {  # Table 9: (task, method, clients) -> AUC
    (task, method, clients): row[2 * t + m]
    for clients, row in _TABLE9.items()
    for t, task in enumerate(TASKS)
    for m, method in enumerate(("FL", "CFL"))
}

_TABLE4 = _rows("""
5  .8560 .9592 .9613 .8406 .8992 .9324 .9681 .9427 .9809
10 .6905 .8939 .9042 .7035 .8238 .8644 .7575 .8871 .9532
15 .6219 .8218 .8503 .6039 .7563 .7632 .7870 .8395 .9212
20 .5999 .8023 .8141 .5602 .7351 .7802 .7533 .8411 .8951
""")
ACTIVE = {  # Table 4: γ = 1 on both, the better of γ = 5 and 10 on CFL
    (task, column, clients): row[3 * t + c]
    for clients, row in _TABLE4.items()
    for t, task in enumerate("ABC")
    for c, column in enumerate(("FL γ=1", "CFL γ=1", "CFL scaled up"))
}

_TABLE5 = _rows("""
5  .9245 .9469 .8705 .8291 .8289 .8374  .9647 .9647 .9806 .9783 .8933 .8896
10 .9011 .9184 .7784 .8556 .8591 .8587  .9216 .9214 .8587 .8546 .8768 .8728
15 .8140 .8293 .6907 .7881 .8019 .7849  .8292 .8274 .7647 .7709 .7910 .7865
20 .8054 .8015 .6685 .8110 .8176 .8120  .8313 .8295 .6440 .6538 .7679 .7707
""")
_TABLE6 = _rows("""
5  .9056 .8575 .7662 .7562 .9216 .8770  .9133 .8930 .9724 .8659 .8933 .8946
10 .9090 .8861 .7588 .7687 .8777 .9098  .9271 .8433 .8506 .7578 .9196 .9318
15 .8319 .8673 .7374 .7695 .9029 .8839  .8336 .8833 .8104 .8493 .9464 .9702
20 .8542 .9049 .7611 .7343 .8924 .9542  .8055 .9166 .8392 .8255 .9351 .9158
""")
REGULARISED = {  # Tables 5 (passive) and 6 (active), on CFL
    (attack, task, f"{defence} {strength}", clients): row[6 * d + 2 * t + s]
    for attack, table in (("passive", _TABLE5), ("active", _TABLE6))
    for clients, row in table.items()
    for d, (defence, strengths) in enumerate((("dropout", (0.1, 0.2)), ("L2", (0.01, 0.02))))
    for t, task in enumerate("ABC")
    for s, strength in enumerate(strengths)
}

_TABLE7 = {
    0.5: _rows("""
5  .4973 .4983 .4918 .4948 .4944 .5081 .5038 .5038 .5031 .4976 .5040 .4986
10 .4910 .4974 .4961 .4992 .5046 .5026 .5042 .5049 .4975 .4924 .5024 .4992
15 .4963 .4959 .4945 .5094 .4990 .5027 .4989 .5050 .4953 .4943 .5039 .4961
20 .4974 .5037 .5014 .4966 .5034 .4951 .4950 .5027 .5053 .4919 .5111 .5063
"""),
    0.2: _rows("""
5  .4910 .4960 .4986 .4933 .5022 .4969 .5093 .5001 .5031 .4976 .496 .4923
10 .5012 .4976 .4982 .5055 .4939 .5036 .5045 .5066 .4975 .4924 .5041 .4986
15 .4961 .5025 .5069 .4990 .4979 .5102 .4983 .4942 .4953 .4943 .5081 .4976
20 .5032 .5058 .4962 .4957 .5016 .4935 .4968 .4952 .5053 .4919 .4925 .5029
"""),
}
NOISED = {  # Table 7: AUC under DP-SGD
    (attack, task, method, sigma, clients): row[6 * a + 2 * t + m]
    for sigma, table in _TABLE7.items()
    for clients, row in table.items()
    for a, attack in enumerate(("passive", "active"))
    for t, task in enumerate("ABC")
    for m, method in enumerate(("FL", "CFL"))
}

_TABLE8 = {
    0.5: _rows("""
5  .6119 .9169 .537 .777 .5489 .792
10 .5003 .8401 .5039 .7325 .512 .638
15 .4999 .7992 .5151 .7661 .4988 .7714
20 .5049 .8493 .5059 .7102 .4942 .7877
"""),
    0.2: _rows("""
5  .7786 .9641 .6577 .822 .6325 .824
10 .8994 .9447 .5015 .7496 .6304 .9181
15 .8786 .9468 .5501 .8528 .4994 .9019
20 .8477 .9389 .5352 .8037 .6065 .8816
"""),
}
UTILITY = {  # Table 8: AUC of the main task under DP-SGD
    (task, method, sigma, clients): row[2 * t + m]
    for sigma, table in _TABLE8.items()
    for clients, row in table.items()
    for t, task in enumerate("ABC")
    for m, method in enumerate(("FL", "CFL"))
}

LOW = 13  # clients of Fig. 3, where the paper finds that CFL leaks no more
COSINE = {"FL": (0.3074, 0.2752), "CFL": (0.9234, 0.1725)}  # Fig. 4: mean and deviation, task C, 5 clients
EPSILON = {0.5: 9.23, 0.2: 33.13}
