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
    "db-passphrase: canary7",
    "python3 train.py --password canary train.csv",
    "python3 train.py --db-password='canary pass' --epochs 3",
    'command: [train, "--api-key", "canary7", --fast]',
    "hf auth login --token canary",
    "train --hub_token=canary -x",
    "train -secret-access-key canary",
    "train --client-secret canary",
    "train --password to-canary",
    "train --logger.api_key canary7",
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
    "train --password $PASSWORD --token=${TOKEN} --api-key '{{ api_key }}' --token $(cat token)",
    "train --password PASSWORD --token <token> --password=/run/secrets/x --token @file",
    "train --password-file /run/secrets/x --password-stdin --no-password all --use-password all",
    "train --token; train --password && x || train --password | tee",
    "train --password\n# canary --token\n# train",
    "train --eos-token x --max-token 7 --token-type bert --tokenizer t5 --secret name",
    "--password or --token is refused; --token, and --password=none",
    'parser.add_argument("--password", help="x"); parser.add_argument("--token", required=True)',
    'command: ["train", "--password", "$(PASSWORD)", "--user", "x"]',
    "is run with --token when private, and asks for a --password before it starts",
    "vault.hashicorp.com/agent-inject-secret-password: secret/data/canary",
    "train --token run/secrets/token.txt",
    "while getopts --long password:,token: -p canary",
]
IN_YAML = [
    "command:\n- train\n- --password\n- canary",
    "args:\n  - '--token'\n  # the token\n  - canary",
    "args: [--password,\n  canary]",
    "args: [--password, 1234]",
    "entrypoint: >-\n  train --api-key\n  canary",
    "entrypoint: train --api-key\n  canary",
    "script: |\n  train --api-key \\\n    canary",
    "env:\n- name: PASSWORD\n  value: canary",
    "environment: [{Value: canary, Name: WANDB_API_KEY}]",
    "password:\n  canary",
    "password: >-\n  canary",
    'a: &x canary\npassword: "can\\x61ry"',
]
PLAIN_YAML = [
    "command:\n- train\n- --password\n- $(PASSWORD)\n- --token\n- '{{ token }}'",
    "args:\n- --password-file\n- canary\n- --password",
    "args: [--password]\nnext: [canary]",
    "args: [--password, --token, /run/token]",
    "script: |\n  train --password\n  train --token\n",
    "env:\n- {name: PASSWORD, valueFrom: {secretKeyRef: {name: canary, key: password}}}\n- name: X",
    "env: [{name: PASSWORD, value: $(OTHER)}, {name: PASSWORD_FILE, value: canary}]",
    "password:\n  valueFrom:\n    secretKeyRef: {name: canary}",
    "password: >-\n  ${CANARY}",
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


@pytest.fixture
def only(tmp_path):
    """A function that loads a template with this text, beginning on its second line."""
    (tmp_path / "experiments").mkdir()

    def load(text: str, name: str = "t.yaml") -> None:
        (tmp_path / "experiments" / name).write_text(f"# a template\n{text}\n")
        load_template(tmp_path, name)

    return load


@pytest.mark.parametrize("text", IN_YAML)
def test_a_secret_on_another_line_than_its_name_is_refused(only, text, tmp_path):
    with larder_error("config.secret") as caught:
        only(text)
    assert "canary" not in str(caught.value)
    assert "1234" not in str(caught.value)
    assert caught.value.where in [f"{tmp_path}/experiments/t.yaml:{n}" for n in (2, 3)]


@pytest.mark.parametrize("text", PLAIN_YAML)
def test_a_name_without_a_value_is_no_secret(only, text):
    only(text)


def test_a_command_on_several_lines_of_a_script(only, tmp_path):
    with larder_error("config.secret", f"{tmp_path}/experiments/t.sh:3"):
        only("srun train \\\n  --password \\\n    canary", "t.sh")
    only("srun train --password\ncanary", "t.sh")
