"""Passwords that Kafka's brokers encrypted for ZooKeeper."""

from __future__ import annotations

import pytest

from kraft.errors import CorruptZnodeError, InvalidConfigError
from kraft.zookeeper.passwords import PasswordDecoder

pytest.importorskip("cryptography")

SECRET = "ge heim"
#: Written by Kafka 3.9.2 (``PasswordEncoder.encrypting``): its defaults, and other algorithms.
WITH_CBC = (
    "initializationVector:g3ziHvim8fg0qGa5mL/9oA==,"
    "keyLength:128,"
    "salt:/PH+9+wvYTwAY9KAHD4I6nN3PUco5qahjHx9TjpCA1Q/FpRA4e14zMwp7V3ePv+NRVq9NWvsN+7xIKw9MKY"
    "Ry3MmNXASPF6p5J5ABrmUdyOCcAVKJHbj+JMgL7ps5dmrHY0hzys11r5Tqm9G2LEIuiIOr0EmuV+/gvdnl4AygPB"
    "2Rmm6MbxnqUYxMKxn2ye1FyWTDH1OxvQL+c2TE2eusc0V+ytzBUJ/EJVH3UepjSenUmVcd/Ejr1AWFC7Wu/zN1KX"
    "CqH/AqQiB1Yg0qCk0bTUJ/U1caj74mBuCz4+N7kugF3tz4elcZxdkBIRk0PLU/m+oX6MCzEXIHB7A8UbTcg==,"
    "keyFactoryAlgorithm:PBKDF2WithHmacSHA512,"
    "cipherAlgorithm:AES/CBC/PKCS5Padding,"
    "iterations:4096,"
    "passwordLength:13,"
    "encryptedPassword:xcR9fLMc0vwKoTJa3n/1hZ34ln4KhKrNGaUXFq/Ml+c="
)
WITH_GCM = (
    "initializationVector:nuYZ5S0h5LQrvxfE,"
    "keyLength:256,"
    "salt:xwenGeTF517/NW582XEuqOMAZvQ38paxiVaz7L67wVDJfkm0MJnp0EZpJIPGxHMuq5u7bBKrOvzcmikLkdV"
    "5EYiKTMCtrOvuNzblfHLQFkW7jaP3el+T/CgDdmr94I22Rz6o+Ezukvoy53EGlc9dnav7QJu0wkRp6Q9z/xjZP4f"
    "uHJMRYtAdyUaJUj2TL9S9up59kcJZ8wLM2O+ajyJpRZI3sSYeunl3M1QEDFG7QuruewLO7tqwpnH6c8eLWGmnbw3"
    "ZCVKrP4DJ9BzL5S72XvC/jVlW37Usm6n5JsaT+coxzTNrosDbe/oLiZ7+mXaokw0ZCMAZIWGrWUS2s7RIpw==,"
    "keyFactoryAlgorithm:PBKDF2WithHmacSHA1,"
    "cipherAlgorithm:AES/GCM/NoPadding,"
    "authenticationTagLength:128,"
    "iterations:1024,"
    "passwordLength:1,"
    "encryptedPassword:0akWsX1sTfQt5wgQAquulzQ="
)


def test_passwords_that_kafka_encrypted() -> None:
    decode = PasswordDecoder(SECRET)
    assert decode(WITH_CBC, "a") == "p\u00e4ss,w:ord \U0001f600"
    assert decode(WITH_GCM, "a") == "x"


@pytest.mark.parametrize("text", [WITH_CBC, WITH_GCM])
def test_another_secret_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"^/x: a is not encrypted with this password"):
        PasswordDecoder("other")(text, "/x: a")


def test_another_length_is_refused() -> None:
    text = WITH_GCM.replace("passwordLength:1", "passwordLength:2")
    with pytest.raises(InvalidConfigError, match="not encrypted with this password"):
        PasswordDecoder(SECRET)(text, "/x: a")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (WITH_CBC, "plain", "it has no number keyLength"),
        ("iterations:4096", "iterations:many", "it has no number iterations"),
        ("iterations:4096", "iterations:99999999", "128 bits and 99999999 iterations"),
        ("keyLength:128", "keyLength:64", "a key of 64 bits"),
        ("PBKDF2WithHmacSHA512", "MD5", "a key of 'MD5'; known are PBKDF2"),
        ("AES/CBC/PKCS5Padding", "DES/CBC", "is encrypted with 'DES/CBC'; known are AES/CBC"),
        ("initializationVector:", "initializationVector:?", "no bytes initializationVector"),
    ],
)
def test_a_text_of_another_form_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(CorruptZnodeError, match=message) as error:
        PasswordDecoder(SECRET)(WITH_CBC.replace(old, new), "/config/brokers/1: a")
    assert str(error.value).startswith("/config/brokers/1: a ")
