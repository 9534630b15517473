import {
  type Context,
  defaultTextMapGetter,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { type ActiveTracing, activeTracing } from './active-tracing.ts';

export interface TracedRequest {
  readonly method: string;
  /** Route pattern with parameter names, never their values. */
  readonly route: string;
  readonly operation: string;
  readonly headers: Readonly<Record<string, unknown>>;
}

/** The span of a request, from its arrival to the end of the response. */
export class RequestSpan {
  readonly #tracing: ActiveTracing;
  readonly #span: Span;
  readonly #context: Context;

  /** Only {@link startRequestSpan} calls this. */
  constructor(tracing: ActiveTracing, span: Span, context: Context) {
    this.#tracing = tracing;
    this.#span = span;
    this.#context = context;
  }

  get traceId(): string {
    return this.#span.spanContext().traceId;
  }

  /** Spans that `work` starts are children of this one. */
  run<Result>(work: () => Result): Result {
    return this.#tracing.contexts.with(this.#context, work);
  }

  /** Records the code of the error that is returned. */
  failed(code: string): void {
    this.#span.setAttribute('error.type', code);
  }

  /** Ends the span. `status` is `aborted` if the client disconnected before the response was complete. */
  end(status: number | 'aborted', workspaceId: string | undefined): void {
    if (workspaceId !== undefined) this.#span.setAttribute('runlake.workspace.id', workspaceId);
    if (status === 'aborted') this.#span.setAttribute('error.type', 'aborted');
    else this.#span.setAttribute('http.response.status_code', status);
    if (status === 'aborted' || status >= 500) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    this.#span.end();
  }
}

/** Continues the trace in the request's `traceparent`, or starts a new one. Returns `undefined` if tracing is off. */
export function startRequestSpan({ method, route, operation, headers }: TracedRequest): RequestSpan | undefined {
  const tracing = activeTracing();
  if (tracing === undefined) return undefined;
  const parent = tracing.propagator.extract(ROOT_CONTEXT, headers, defaultTextMapGetter);
  const attributes = { 'http.request.method': method, 'http.route': route, 'runlake.operation': operation };
  const span = tracing.tracer.startSpan(`${method} ${route}`, { kind: SpanKind.SERVER, attributes }, parent);
  return new RequestSpan(tracing, span, trace.setSpan(parent, span));
}
