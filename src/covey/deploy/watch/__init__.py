"""The operator's view: what a party says of itself while it runs.

    watch.py        what happens, gathered: `status.json`, and events for the journal
    journal.py      sentences for people, or JSON lines for machines (`--log json`)
    exposition.py   the same for Prometheus
    endpoint.py     /metrics, /health and /status.json on loopback (`--metrics PORT`)

No key, model, sample or letter comes in here: the parties hand over names, counts, times and sentences.
"""
