"""`vela doctor`: what is installed, what would be used, what is wrong and how to mend it."""

import click
import msgspec

MARKS = {"fine": "ok   ", "note": "note ", "wrong": "WRONG"}


@click.command()
@click.option("--device", help="cpu, migraphx:N, rocm:N or cuda:N; by default what the installed build is for.")
@click.option("--json", "as_json", is_flag=True, help="Print findings as JSON.")
def command(*, device: str | None, as_json: bool) -> None:
    """Say what keeps this machine from serving on a device, and how to mend it; exits with 1 where something does."""
    from vela.serve import doctor

    findings = doctor.examine(device)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(findings), indent=1))
    else:
        for finding in findings:
            click.echo(f"{MARKS[finding.status]}  {finding.about:12s}  {finding.found}")
            if finding.fix:
                click.echo(f"       {'':12s}  {finding.fix}")
    raise SystemExit(0 if doctor.is_well(findings) else 1)
