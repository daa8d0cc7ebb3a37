"""``heliograph doctor`` where brokers are set up in an odd way."""

from __future__ import annotations

from doctoring import Patient


def test_doctor_finds_brokers_that_forget_producers(quick_lab, tmp_path):
    patient = Patient(quick_lab, tmp_path)
    patient.create(patient.source, patient.topic)
    found = patient.examine()
    patient.close()
    assert set(found) == {("broker-settings", "warning")}
    assert "producer.id.expiration.ms=500" in found["broker-settings", "warning"]
