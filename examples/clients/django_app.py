"""A shop that hands refunds to a fleet: Django pages and forms, and the fleet by `archmax.client.Client`.

    ARCHMAX_KEY=amx_… python django_app.py runserver 9001

One file, no database: one order is one session of the fleet, which keeps everything there is to know.
"""

import os
import re
import sys
from collections.abc import Callable

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template import Context, Engine
from django.template.context_processors import csrf
from django.urls import path

from archmax.client import ApiError, ApiUnreachable, Client

FLEET = os.environ.get("ARCHMAX_URL", "http://127.0.0.1:8000")
KEY = os.environ["ARCHMAX_KEY"]
#: how long a page waits for the turn before it asks the browser to come again
PATIENCE_SECONDS = 10

settings.configure(
    SECRET_KEY=os.environ.get("DJANGO_SECRET_KEY", "only-for-this-example"),
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        f"{__name__}.FleetRefusals",
    ],
)
django.setup()

ASK = """
<h1>Refunds</h1>
<form method="post"><input type="hidden" name="csrfmiddlewaretoken" value="{{ csrf_token }}">
  <label>Order <input name="order"></label> <label>From <input name="customer"></label>
  <label>Why <input name="why"></label> <button>Ask for a refund</button>
</form>
"""
SHOW = """
<h1>{{ order }}: {{ status }}</h1>
{% if running %}<meta http-equiv="refresh" content="1"><p>We are at it.</p>{% endif %}
<p>{{ reply }}</p>
{% if ways %}<form method="post"><input type="hidden" name="csrfmiddlewaretoken" value="{{ csrf_token }}">
  <label>Comment <input name="comment"></label>
  {% for way in ways %}<button name="to" value="{{ way.to }}">{{ way.description }}</button>{% endfor %}
</form>{% endif %}
"""


def fleet() -> Client:
    """One for each request: a client serves one thread, and a person who waits is not kept waiting by many retries."""
    return Client(FLEET, KEY, retries=1)


def page(request: HttpRequest, template: str, **values: object) -> HttpResponse:
    context = Context({**values, **{name: str(value) for name, value in csrf(request).items()}})
    return HttpResponse(Engine().from_string(template).render(context))


def ask(request: HttpRequest) -> HttpResponse:
    """The form, and what it sends. Pressed twice it is one turn: the idempotency key names the order."""
    if request.method != "POST":
        return page(request, ASK)
    order = request.POST["order"].strip()
    if not re.fullmatch(r"[A-Z]{2}-[0-9]{4}", order):
        return HttpResponse("no such order", status=400)
    with fleet() as client:
        turn = client.start(
            "order-desk",
            message=f"From: {request.POST['customer']} — {order}: {request.POST['why']}",
            session_id=f"refund-{order}",
            labels={"order": order},
            idempotency_key=f"refund/{order}",
        )
    return redirect("refund", order=order, turn=turn["turnId"])


def refund(request: HttpRequest, order: str, turn: str) -> HttpResponse:
    """The turn's page: it waits for the turn a while, shows how it ended, and takes the decision it asks for."""
    session = f"refund-{order}"
    if turn.rpartition(".")[0] != session:
        raise Http404
    with fleet() as client:
        if request.method == "POST":
            decided = client.decide(session, request.POST["to"], request.POST.get("comment") or None)
            return redirect("refund", order=order, turn=decided["turnId"])
        found = client.turn(turn, wait_seconds=PATIENCE_SECONDS)
        outcome = found.get("outcome") or {}
        return page(
            request,
            SHOW,
            order=order,
            status=outcome.get("kind") or found["status"],
            running=not outcome,
            reply=outcome.get("reply", ""),
            ways=(outcome.get("pending") or {}).get("transitions", ()),
        )


class FleetRefusals:
    """A refusal of the fleet as an answer of the shop: 409 when somebody else was faster, 503 when it is away."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, _request: HttpRequest, error: Exception) -> HttpResponse | None:
        match error:
            case ApiError():
                return HttpResponse(str(error), status=502 if error.status in (401, 403) else error.status)
            case ApiUnreachable():
                return HttpResponse("please try again", status=503, headers={"Retry-After": "5"})
            case _:
                return None


urlpatterns = [path("refunds/", ask), path("refunds/<str:order>/<path:turn>/", refund, name="refund")]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
