"""What a failover's plan says besides."""

from heliograph.failover.worth_knowing import streams_applications


def test_b22_an_application_of_kafka_streams_is_named_with_its_state():
    groups = ["billing", "shop", "shop-web"]
    topics = [
        "orders", "shop-totals-store-changelog", "shop-by-customer-repartition", "shop-catalogue",
        "billing-changelog-of-orders", "others-store-changelog",
    ]  # fmt: skip
    [note] = streams_applications(groups, topics)
    assert note.startswith(
        "shop is an application of Kafka Streams: its state (shop-by-customer-repartition,"
        " shop-totals-store-changelog) and its input were not cut at the same point"
    )
    assert "kafka-streams-application-reset.sh" in note
    assert not list(streams_applications(groups, ["orders"]))
    many = [f"shop-{n}-changelog" for n in range(5)]
    assert "shop-2-changelog and 2 more)" in next(streams_applications(["shop"], many))
