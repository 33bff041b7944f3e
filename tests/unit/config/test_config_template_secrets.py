"""A template with a secret is refused, because configs are kept, shown and sent to Prefect."""

import shutil
from pathlib import Path

import pytest

from larder.config.load import load_template
from larder.experiments.consumers.registry import CONSUMERS
from tests.support.errors import larder_error

CONFIGS = Path(__file__).parents[3] / "configs"
TEMPLATES = sorted({each.TEMPLATE for each in CONSUMERS.values() if each.TEMPLATE})
KEY = "wJalrcanaryUtnFEMI/K7canaryMDENG/bPxRcan"
SECRETS = [
    f"TOKEN={KEY}",
    f"value: '{KEY}'",
    f"--key={KEY}",
    "id: AKIAIOSFODNN7CANARY1",
    "token: ghp_canary",
    "HF_TOKEN=hf_" + "canary" * 6,
    "-----BEGIN RSA PRIVATE KEY-----",
    "url: https://user:canary@host/x",
    f"https://{KEY}@host/x",
    "s3://b/k?X-Amz-Signature=canary",
    "WANDB_API_KEY=canary",
    'secret_key: "canary"',
    '"password": "canary"',
]
PLAIN = [
    "git clone ssh://git@github.com/a/b && pip install git+https://github.com/a/b@v1",
    "curl https://user:$PASSWORD@host/x https://${TOKEN}@host/x",
    "srun --container-image=docker://$oauthtoken@nvcr.io#nvidia/pytorch:26.01-py3",
    "image: host:5000/a@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "cd /shared/Datasets/imagenet2012/training/files",
    "export WANDB_API_KEY=$(cat key) AWS_SECRET_ACCESS_KEY=$KEY",
    "password: null",
    "password: *password",
    "name: AWS_SECRET_ACCESS_KEY",
    "eos_token: </s>",
]


@pytest.fixture
def template(tmp_path):
    """A function that adds a line to a template, and loads it."""
    shutil.copytree(CONFIGS, tmp_path / "configs")

    def load(name: str, line: str) -> None:
        text = (CONFIGS / "experiments" / name).read_text()
        (tmp_path / "configs/experiments" / name).write_text(f"{text}\n# {line}\n")
        load_template(tmp_path / "configs", name)

    return load


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_with_a_secret_is_refused(template, name):
    for secret in SECRETS:
        with larder_error("config.secret") as caught:
            template(name, secret)
        assert "canary" not in str(caught.value), secret


@pytest.mark.parametrize("name", TEMPLATES)
def test_names_paths_and_variables_are_no_secrets(template, name):
    for line in PLAIN:
        template(name, line)
