"""``criproxy schema``: the JSON Schema of policy files, for editors."""

import click


@click.command(short_help="Print the JSON Schema of policy files, for editors.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="Include only this policy. Repeatable.  [default: all, including those of installed packages]",
)
def command(policies: tuple[str, ...]) -> None:
    """Print the JSON Schema of policy files: editors use it to complete, explain and check options.

    With yaml-language-server (VS Code, Neovim, Emacs and others), store the schema and refer to it in the first line of
    the policy file:

        criproxy schema > policy.schema.json

        # yaml-language-server: $schema=policy.schema.json
    """
    import json

    from criproxy.config.schema import policy_schema
    from criproxy.config.settings import names

    click.echo(json.dumps(policy_schema(policies or names()), indent=2))
