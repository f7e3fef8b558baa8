"""``criproxy schema``: the JSON Schema of policy files, for editors; the definitions of our objects, for Kubernetes."""

import click


@click.command(short_help="Print the JSON Schema of policy files, for editors.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="Include only this policy. Repeatable.  [default: all, including those of installed packages]",
)
@click.option(
    "--crds", is_flag=True, help="Print the CustomResourceDefinitions of NodePolicy and NodePlacement instead, as YAML."
)
def command(*, policies: tuple[str, ...], crds: bool) -> None:
    """Print the JSON Schema of policy files: editors use it to complete, explain and check options.

    With yaml-language-server (VS Code, Neovim, Emacs and others), store the schema and refer to it in the first line of
    the policy file:

        criproxy schema > policy.schema.json

        # yaml-language-server: $schema=policy.schema.json

    The API server checks each NodePolicy by its definition. The chart installs the definitions without policies of
    other packages; this also includes those:

        criproxy schema --crds | kubectl apply -f -
    """
    import json

    from criproxy.config.schema import policy_schema
    from criproxy.config.settings import names

    if crds:
        from criproxy.agent.objects.crds import as_yaml, custom_resources

        click.echo("---\n".join(map(as_yaml, custom_resources(policies or names()))), nl=False)
        return
    click.echo(json.dumps(policy_schema(policies or names()), indent=2))
