"""What is cut out of terraform-provider-aws when it is built, and how its folder in the cache is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.provider import tool, trimmed_module
from lab.rehearsal.toolbox import ToolMissingError

SERVICES = f"""
import (
	"context"

	"{trimmed_module.MODULE}/internal/conns"
	"{trimmed_module.MODULE}/internal/service/acm"
	"{trimmed_module.MODULE}/internal/service/fsx"
)

func servicePackages(ctx context.Context) []conns.ServicePackage {{
	v := []conns.ServicePackage{{
		acm.ServicePackage(ctx),
		fsx.ServicePackage(ctx),
	}}
"""

CLIENTS = """
import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/acm"
	logs "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/fsx"
	"github.com/aws/aws-sdk-go-v2/internal/other"
)

func (c *AWSClient) ACMClient(ctx context.Context) *acm.Client {
	return errs.Must(client[*acm.Client](ctx, c, names.ACM, make(map[string]any)))
}

func (c *AWSClient) FSxClient(ctx context.Context) *fsx.Client {
	return errs.Must(client[*fsx.Client](ctx, c, names.FSx, make(map[string]any)))
}

func (c *AWSClient) LogsClient(ctx context.Context) *logs.Client {
	return errs.Must(client[*logs.Client](ctx, c, names.Logs, make(map[string]any)))
}
"""


def test_the_other_services_are_neither_imported_nor_listed() -> None:
    found = trimmed_module.with_services(SERVICES, ["fsx"])

    assert found == "".join(line for line in SERVICES.splitlines(keepends=True) if "acm" not in line)


def test_a_service_that_the_module_does_not_list_is_named() -> None:
    with pytest.raises(ToolMissingError, match=r"service_packages_gen\.go does not list eks as .*trimmed_module"):
        trimmed_module.with_services(SERVICES, ["fsx", "eks"])


def test_a_client_stays_where_its_method_is_called() -> None:
    found = trimmed_module.with_clients(CLIENTS, {"FSxClient", "LogsClient", "OtherClient"})

    assert "acm" not in found
    assert found.count("\nfunc ") == 2
    assert '\tlogs "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"\n' in found
    assert '"github.com/aws/aws-sdk-go-v2/internal/other"\n' in found


def test_a_list_of_clients_that_is_written_otherwise_is_refused() -> None:
    with pytest.raises(ToolMissingError, match=r"awsclient_gen\.go has none of the methods FSxClient"):
        trimmed_module.with_clients(CLIENTS.replace("AWSClient)", "Client)"), {"FSxClient"})


def module(folder: Path) -> Path:
    """A module that is built like the provider's, with two services."""
    delay = trimmed_module.FILE_SYSTEM_DELETION[0]
    name = trimmed_module.MODULE
    sources = {
        "go.mod": "module x\n",
        "main.go": f'import "{name}/internal/provider/sdkv2"\n',
        "main_test.go": f'import "{name}/internal/acctest"\n',
        "internal/provider/sdkv2/service_packages_gen.go": SERVICES,
        "internal/conns/awsclient_gen.go": CLIENTS,
        "internal/service/acm/certificate.go": "conn := meta.ACMClient(ctx)\n",
        "internal/service/fsx/lustre_file_system.go": f"//go:embed texts/*.txt\n{delay}\nconn := meta.FSxClient(ctx)\n",
        "internal/service/fsx/texts/one.txt": "one\n",
    }
    for file, text in sources.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder


def test_the_trimmed_module_has_what_its_program_imports_and_embeds(tmp_path: Path) -> None:
    trimmed_module.write(module(tmp_path / "whole"), tmp_path / "trimmed", ["fsx"])

    files = {str(path.relative_to(tmp_path / "trimmed")) for path in (tmp_path / "trimmed").rglob("*.*")}
    assert files == {
        "go.mod",
        "main.go",
        "internal/provider/sdkv2/service_packages_gen.go",
        "internal/conns/awsclient_gen.go",
        "internal/service/fsx/lustre_file_system.go",
        "internal/service/fsx/texts/one.txt",
    }
    assert "logs" not in (tmp_path / "trimmed/internal/conns/awsclient_gen.go").read_text()
    assert (
        trimmed_module.FILE_SYSTEM_DELETION[1]
        in (tmp_path / "trimmed/internal/service/fsx/lustre_file_system.go").read_text()
    )


@pytest.mark.parametrize(
    ("file", "text", "refusal"),
    [
        ("internal/service/fsx/lustre_file_system.go", "", "lustre_file_system.go does not have the line"),
        ("main.go", f'import "{trimmed_module.MODULE}/gone"\n', "gone is imported and has no Go source"),
    ],
)
def test_a_module_that_the_recipe_does_not_know_is_refused(tmp_path: Path, file: str, text: str, refusal: str) -> None:
    (module(tmp_path / "whole") / file).write_text(text)

    with pytest.raises(ToolMissingError, match=refusal):
        trimmed_module.write(tmp_path / "whole", tmp_path / "trimmed", ["fsx"])


def test_another_recipe_is_another_tool_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "trimmed_module.py"
    other.write_text("# other\n")
    before = tool.build_name()

    monkeypatch.setattr(trimmed_module, "__file__", str(other))

    assert tool.build_name() != before
    assert tool.build_name().startswith(f"{tool.version()}-")


def test_nothing_is_built_where_only_the_cache_is_asked(tmp_path: Path) -> None:
    assert tool.find({"FASTSTART_CACHE": str(tmp_path)}) is None
    assert not [*tmp_path.iterdir()]
