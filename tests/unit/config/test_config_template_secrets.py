"""A template with a secret is refused, because configs are kept, shown and sent to Prefect."""

import shutil
from pathlib import Path

import pytest

from larder.config.load import load_template
from larder.experiments.consumers.registry import CONSUMERS, consumer_configs
from tests.support.errors import larder_error

CONFIGS = Path(__file__).parents[3] / "configs"
TEMPLATES = sorted({each.TEMPLATE for each in map(consumer_configs, CONSUMERS) if each.TEMPLATE})
KEY = "wJalrcanaryUtnFEMI/K7canaryMDENG/bPxRcan"
SECRETS = [
    f"TOKEN={KEY}",
    f"value: '{KEY}'",
    f"--key={KEY}",
    "id: AKIAIOSFODNN7CANARY1",
    "token: ghp_" + "canary" * 6,
    "Bearer eyJcanary.eyJcanary.c",
    "HF_TOKEN=hf_" + "canary" * 6,
    "-----BEGIN RSA PRIVATE KEY-----",
    "url: https://user:canary@host/x",
    f"https://{KEY}@host/x",
    "s3://b/k?X-Amz-Signature=canary",
    "WANDB_API_KEY=canary",
    'secret_key: "canary"',
    '"password": "canary"',
    "password: canary7  # for now",
]
PLAIN = [
    "git clone ssh://git@github.com/a/b && pip install git+https://github.com/a/b@v1",
    f"pip install git+https://github.com/a/b@{'0123456789abcdef' * 2}01234567-Linux",
    "curl https://user:$PASSWORD@host/x https://${TOKEN}@host/x https://USER:PASSWORD@host/x",
    "larder.open http://$HOST:$PORT/larder/imagenet@latest",
    "srun --container-image=docker://$oauthtoken@nvcr.io#nvidia/pytorch:26.01-py3",
    f"docker://python:3.14@sha256:{'0123456789abcdef' * 4} docker://$REGISTRY:$PORT/a@sha256:0",
    f"image: host:5000/a@sha256:{'0123456789abcdef' * 4}",
    "role: arn:aws:iam::aws:policy/service-role/AmazonEC2ContainerServiceforEC2Role",
    "cd shared/Datasets/imagenet2012/training/fil && cat s3://Datasets/imagenet2012/training/files/cats",
    "export WANDB_API_KEY=$(cat key) AWS_SECRET_ACCESS_KEY=$KEY PASSWORD=/run/secrets/password",
    "export WANDB_API_KEY=${WANDB_API_KEY:?set it} OPENAI_API_KEY=EMPTY",
    'api_key = os.environ["API_KEY"]',
    '[ "$PASSWORD" == "x" ] || echo %wheel ALL=NOPASSWD: ALL',
    "password: see the vault",
    "api_key: arn:aws:secretsmanager:us-west-2:1:secret:x",
    "password: null",
    "password: *password",
    "use_password: no",
    "secretKeyRef: {name: database, key: password}",
    "passwordFile: /run/password",
    "name: AWS_SECRET_ACCESS_KEY",
    "eos_token: </s>",
    "max_tokens: 4096",
    "config: eyJsciI6IDAuMSwgImVwb2NocyI6IDkwfQ==",
    "-----BEGIN CERTIFICATE-----",
    "hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx xoxb-token s3://bucket/ghs_population",
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
