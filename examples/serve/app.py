"""The FastAPI application: what each worker runs.

POST /embed    {"texts": [...]} to {"vectors": [[...], ...]}
GET  /live     the process answers
GET  /ready    200 once all gears are warm, 503 before
GET  /metrics  Prometheus
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Annotated, Any

import torch
from fastapi import FastAPI, HTTPException, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field

from examples.serve.metrics import Metrics, exposition

MODEL = "examples.serve.model:CompiledEmbedder"
"""Another class that is called alike: variable SERVE_MODEL."""

MOST_TEXTS, MOST_CHARACTERS = 256, 20_000


class Texts(BaseModel):
    """A request. Anything else is answered with 422 and the reason."""

    texts: list[Annotated[str, Field(max_length=MOST_CHARACTERS)]] = Field(
        min_length=1, max_length=MOST_TEXTS
    )


class Vectors(BaseModel):
    """Unit vectors, one for each text."""

    vectors: list[list[float]]


class Service:
    """The model of this worker and the one thread that calls it, so that the event loop goes on
    answering meanwhile. Threads inside of a call are torch's."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "model")
        self._model: Any = None
        self.is_ready = False
        self.metrics = Metrics()

    async def start(self) -> None:
        """Load the model and warm it up."""
        await self._run(self._start)
        self.is_ready = True
        self.metrics.ready(self._model.report())

    def _start(self) -> None:
        torch.set_num_threads(int(os.environ.get("SERVE_THREADS", "1")))
        module, _, name = os.environ.get("SERVE_MODEL", MODEL).partition(":")
        self._model = getattr(import_module(module), name)(self.metrics.call)
        self._model.warm_up()

    async def embed(self, texts: list[str]) -> list[list[float]]:
        """Wait for the model's thread, then for the result."""
        with self.metrics.request(len(texts)):
            found = await self._run(self._model.embed, texts)
        self.metrics.update(self._model.report())
        return found

    async def _run(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def stop(self) -> None:
        """Requests have been answered by now: uvicorn waits for them."""
        self._thread.shutdown()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Warm up behind the first answers of /live and /ready; end the worker if that fails."""
    service = app.state.service = Service()

    def check(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and done.exception() is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the model does not start", "exception": done.exception()}
            )
            os._exit(1)  # the supervisor starts another worker

    starting = asyncio.create_task(service.start())
    starting.add_done_callback(check)
    yield
    starting.cancel()
    service.stop()


app = FastAPI(title="embeddings", lifespan=lifespan)


@app.get("/live")
async def live() -> str:
    """The process answers."""
    return "live"


@app.get("/ready")
async def ready() -> str:
    """This worker is ready to embed."""
    if not app.state.service.is_ready:
        raise HTTPException(503, "warming up", {"Retry-After": "1"})
    return "ready"


@app.post("/embed")
async def embed(request: Texts) -> Vectors:
    """A unit vector for each text."""
    await ready()
    return Vectors(vectors=await app.state.service.embed(request.texts))


@app.get("/metrics")
async def metrics() -> Response:
    """Of all workers."""
    return Response(await asyncio.to_thread(exposition), media_type=CONTENT_TYPE_LATEST)
