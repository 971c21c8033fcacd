"""Post one comment to a merge request, or replace the one that an earlier run posted. Needs only Python.

``python comment.py FILE`` posts the Markdown of ``ms-tune check --markdown-file FILE``. The service is that of the environment:

- GitHub Actions: ``TOKEN`` (the workflow's token, with ``pull-requests: write``).
- GitLab CI: ``MS_TUNE_TOKEN``, a project access token with the scope ``api``; a job's own token may not comment.
- Gitee, GitCode, AtomGit (API v5): ``MS_TUNE_API`` (its address, up to ``/v5``), ``MS_TUNE_REPOSITORY`` (``owner/name``), ``MS_TUNE_PULL``
  (the number) and ``MS_TUNE_TOKEN``.

Only a comment of its own user that begins with the marker is replaced. Without a token, or if the service refuses it (on GitHub the
token of a fork's pull request may not write), it says so and succeeds: the job's log and its exit code have the result anyway.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

PAGE, PAGES = 100, 20
PATIENCE = 30  # seconds


class Service(NamedTuple):
    """Where the comments of one merge request are."""

    list: str
    edit: str  # the address of one comment, with `{id}`
    edit_method: str
    headers: dict[str, str]
    user: str | None  # the user's name; None to ask `me`
    me: str


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects would send the token elsewhere."""

    def redirect_request(self, *_: Any) -> None:  # noqa: ANN401 - the base class has six parameters
        """Refuse it."""


def find_service(given: dict[str, str]) -> Service | None:
    """Return the service of an environment; None if it is not a merge request, or a token is missing."""
    if given.get("GITHUB_ACTIONS"):
        event = json.loads(Path(given["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        number, api = event.get("pull_request", {}).get("number"), given["GITHUB_API_URL"]
        issues = f"{api}/repos/{given['GITHUB_REPOSITORY']}/issues"
        if number is None or not given.get("TOKEN"):
            return None
        headers = {"Authorization": f"Bearer {given['TOKEN']}", "Accept": "application/vnd.github+json"}
        user = given.get("MS_TUNE_USER", "github-actions[bot]")  # the workflow's token cannot ask who it is
        return Service(f"{issues}/{int(number)}/comments", f"{issues}/comments/{{id}}", "PATCH", headers, user, "")
    token = given.get("MS_TUNE_TOKEN")
    if not token:
        return None
    if given.get("GITLAB_CI"):
        api, number = given["CI_API_V4_URL"], given.get("CI_MERGE_REQUEST_IID")
        notes = f"{api}/projects/{quote(given['CI_PROJECT_ID'])}/merge_requests/{number}/notes"
        one = f"{notes}/{{id}}"
        return Service(notes, one, "PUT", {"PRIVATE-TOKEN": token}, None, f"{api}/user") if number else None
    api, number = given.get("MS_TUNE_API", ""), given.get("MS_TUNE_PULL")
    if not api or not number:
        return None
    pulls = f"{api}/repos/{quote(given['MS_TUNE_REPOSITORY'])}/pulls"
    headers = {"Authorization": f"Bearer {token}"}
    return Service(f"{pulls}/{int(number)}/comments", f"{pulls}/comments/{{id}}", "PATCH", headers, None, f"{api}/user")


def call(service: Service, address: str, method: str = "GET", body: str | None = None) -> Any:  # noqa: ANN401 - JSON
    """Return the answer to one request."""
    data = None if body is None else json.dumps({"body": body}).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "ms-tune", **service.headers}
    request = urllib.request.Request(address, data, headers, method=method)  # noqa: S310 - the address is the runner's own
    with urllib.request.build_opener(NoRedirects).open(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def post(service: Service, text: str) -> str:
    """Post the text or replace the earlier comment; return which."""
    marker = text.partition("\n")[0]
    me = service.user or name_of(call(service, service.me))
    for page in range(1, PAGES + 1):
        found = call(service, f"{service.list}?per_page={PAGE}&page={page}")
        for one in found:
            if one["body"].startswith(marker) and name_of(one.get("user") or one.get("author")) == me:
                call(service, service.edit.format(id=quote(str(one["id"]))), service.edit_method, text)
                return "updated"
        if len(found) < PAGE:
            break
    call(service, service.list, "POST", text)
    return "posted"


def name_of(user: dict[str, str] | None) -> str | None:
    """Return the name of a user, which GitLab calls otherwise."""
    return (user or {}).get("login") or (user or {}).get("username")


def main() -> None:
    """Post the file's text."""
    service = find_service(dict(os.environ))
    if service is None:
        print("ms-tune: no comment, because this is not a merge request or has no token", file=sys.stderr)
        return
    try:
        print(f"ms-tune: comment {post(service, Path(sys.argv[1]).read_text(encoding='utf-8'))}", file=sys.stderr)
    except (urllib.error.URLError, TimeoutError) as error:
        print(f"ms-tune: no comment, because the service refuses it ({error})", file=sys.stderr)


if __name__ == "__main__":
    main()
