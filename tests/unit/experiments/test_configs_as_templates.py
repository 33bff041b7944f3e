"""A config that was emitted is a template, too: what Larder added to it is replaced."""

from larder.experiments.consumers.kubernetes import config_files
from larder.experiments.delivery import ConfigRequest
from tests.support.errors import larder_error
from tests.unit.experiments.made import cluster_of, version_of
from tests.unit.experiments.test_kubernetes import CASES, contents, loaded, template


def test_a_job_that_copies_a_claim_first_is_emitted_again():
    kind, (url, delivery, options) = CASES["job-download-claim"]
    version, here = version_of(url, delivery), cluster_of("kubernetes", url, **options)
    (file,) = config_files(ConfigRequest(template(kind), version, contents(), here))
    with larder_error("config.template") as caught:
        config_files(ConfigRequest(loaded(file.text), version, contents(), here))
    assert "spec.template.spec.volumes" in caught.value.message
    forced = version._replace(replaces=True)
    (again,) = config_files(ConfigRequest(loaded(file.text), forced, contents(), here))
    assert loaded(again.text) == loaded(file.text)
