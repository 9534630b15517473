// # 1. Send a trace
//
// These chapters run: prose is comments, examples are assertions. `npx vitest run docs/guide` runs all of them, each on a
// Runlake of its own.
//
// A *run* is one step of a program: a model call, a tool, a chain of both. Runs that belong together are a *trace*; the one
// without a parent is its *root*. Traces are kept in *projects*.

import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { traceable } from 'langsmith/traceable';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunlakeProcess, startRunlake } from '../../test/runlake-process.ts';

let runlake: RunlakeProcess;
beforeAll(async () => {
  runlake = await startRunlake();
});
afterAll(() => runlake?.remove());

describe('with the langsmith SDK', () => {
  it('wraps the functions of your program', async () => {
    // Outside a test, LANGSMITH_ENDPOINT and LANGSMITH_API_KEY say this, and LANGSMITH_TRACING=true turns tracing on.
    const client = new Client({ apiUrl: runlake.url, apiKey: runlake.apiKey });

    const askModel = traceable(async (question: string) => `The answer to "${question}" is 42.`, {
      name: 'ask model',
      run_type: 'llm',
      client,
      tracingEnabled: true,
      project_name: 'guide',
    });
    const answer = traceable(async (question: string) => askModel(question), {
      name: 'answer',
      client,
      tracingEnabled: true,
      project_name: 'guide',
    });
    await answer('What is six times seven?');

    // The SDK sends in the background. A program that ends soon has to wait for it.
    await client.awaitPendingTraceBatches();

    // The project is made by the first trace that names it.
    const project = await client.readProject({ projectName: 'guide' });
    expect(project.name).toBe('guide');
  });
});

describe('over plain HTTP', () => {
  // The key travels in the header `x-api-key`.
  const send = (method: string, path: string, body: object) =>
    fetch(`${runlake.url}${path}`, {
      method,
      headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });

  it('takes a run as one JSON object, and later what became of it', async () => {
    const id = randomUUID();
    const posted = await send('POST', '/api/v1/runs', { id, name: 'hello', run_type: 'chain', inputs: { a: 1 } });

    // 202 means that the run is on disk: a crash of everything at this moment loses nothing.
    expect(posted.status).toBe(202);

    // Sending it again changes nothing, so a client that heard no answer may simply repeat.
    const again = await send('POST', '/api/v1/runs', { id, name: 'hello', run_type: 'chain', inputs: { a: 1 } });
    expect(again.status).toBe(202);

    const patched = await send('PATCH', `/api/v1/runs/${id}`, {
      outputs: { b: 2 },
      end_time: new Date().toISOString(),
    });
    expect(patched.status).toBe(202);
  });

  it('says what is wrong with a run, and what to do', async () => {
    const answer = await send('POST', '/api/v1/runs', { id: randomUUID(), name: 'hello', run_type: 'guesswork' });
    expect(answer.status).toBe(422);
    const { error, code, remedy } = (await answer.json()) as Record<string, string>;
    expect(error).toContain('run_type');
    expect(code).toBe('INVALID_RUN');
    expect(remedy).not.toBe('');
    // Every code is explained in docs/reference/errors.md.
  });
});

describe('with OpenTelemetry', () => {
  it('takes OTLP over HTTP, protobuf or JSON', async () => {
    // Exporters need OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1984/otel/v1/traces and
    // OTEL_EXPORTER_OTLP_HEADERS="x-api-key=…,Langsmith-Project=…". This is what they send:
    const nowNanos = BigInt(Date.now()) * 1_000_000n;
    const span = {
      traceId: '5b8efff798038103d269b633813fc60c',
      spanId: 'eee19b7ec3c1b174',
      name: 'agent',
      startTimeUnixNano: String(nowNanos),
      endTimeUnixNano: String(nowNanos + 250_000_000n),
    };
    const answer = await fetch(`${runlake.url}/otel/v1/traces`, {
      method: 'POST',
      headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json', 'Langsmith-Project': 'otel guide' },
      body: JSON.stringify({ resourceSpans: [{ scopeSpans: [{ spans: [span] }] }] }),
    });
    expect(answer.status).toBe(200);

    // The trace keeps its id, written as a UUID.
    const found = await fetch(`${runlake.url}/api/v1/runs/query`, {
      method: 'POST',
      headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
      body: JSON.stringify({ trace: '5b8efff7-9803-8103-d269-b633813fc60c' }),
    });
    expect(await found.json()).toMatchObject({ runs: [{ name: 'agent', status: 'success' }] });
  });
});
