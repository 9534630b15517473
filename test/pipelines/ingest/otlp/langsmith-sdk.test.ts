import { context } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { OtlpDraft } from '../../../../pipelines/ingest/otlp/map-span.ts';
import { readOtlp } from '../../../../pipelines/ingest/otlp/read-otlp.ts';
import { runToCompletion } from '../run-to-completion.ts';
import { type Collector, startCollector } from './collector.ts';
import { maxBytes, metadataOf, texts } from './requests.ts';

const settings = {
  LANGSMITH_TRACING: 'true',
  LANGSMITH_OTEL_ENABLED: 'true',
  LANGSMITH_API_KEY: 'unused',
  LANGSMITH_PROJECT: 'from-sdk',
  LANGSMITH_ENDPOINT: '',
};
const before = Object.fromEntries(Object.keys(settings).map((name) => [name, process.env[name]]));
let collector: Collector;
let runs: OtlpDraft[];
let clientRootId: string | undefined;

beforeAll(async () => {
  collector = await startCollector();
  Object.assign(process.env, settings, { LANGSMITH_ENDPOINT: collector.origin });
  const { initializeOTEL } = await import('langsmith/experimental/otel/setup');
  const { getCurrentRunTree, traceable } = await import('langsmith/traceable');
  const globalContextManager = new AsyncLocalStorageContextManager().enable();
  context.setGlobalContextManager(globalContextManager);
  const { DEFAULT_LANGSMITH_SPAN_PROCESSOR } = initializeOTEL({ globalContextManager });
  const model = traceable(
    async (_question: string) => ({
      answer: 'Grüß "Gott"',
      usage_metadata: { input_tokens: 7, output_tokens: 5, total_tokens: 12, input_token_details: { cache_read: 2 } },
    }),
    { name: 'model', run_type: 'llm', metadata: { ls_model_name: 'gpt-4o', ls_provider: 'openai' } },
  );
  const tool = traceable(
    async () => {
      throw new Error('out of order');
    },
    { name: 'tool', run_type: 'tool' },
  );
  const agent = traceable(
    async (question: { text: string }) => {
      clientRootId = getCurrentRunTree().id;
      await model(question.text);
      await tool().catch(() => undefined);
      return { done: true };
    },
    { name: 'agent', run_type: 'chain', tags: ['a', 'b'], metadata: { user: 'ada', nested: { deep: [1] } } },
  );
  await agent({ text: 'hi' });
  await DEFAULT_LANGSMITH_SPAN_PROCESSOR.shutdown();
  runs = collector.requests.flatMap(({ contentType, body }) => {
    const { drafts, rejected } = runToCompletion(
      readOtlp({ contentType, body, maxDepth: 64, maxParts: 1_000_000, maxBytes }),
    );
    expect(rejected).toEqual([]);
    return drafts;
  });
});

afterAll(async () => {
  await collector?.close();
  for (const [name, value] of Object.entries(before)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
});

function run(name: string): OtlpDraft {
  const found = runs.find(({ values }) => values.name === name);
  if (found === undefined) throw new Error(`no run ${name} among ${runs.map(({ values }) => values.name)}`);
  return found;
}

test('three runs of one trace, in the project and tree of the SDK', () => {
  expect(runs).toHaveLength(3);
  const root = run('agent');
  expect(new Set(runs.map(({ traceId }) => traceId)).size).toBe(1);
  expect(runs.map(({ projectName }) => projectName)).toEqual(['from-sdk', 'from-sdk', 'from-sdk']);
  expect(root.values.parentRunId).toBeUndefined();
  expect(run('model').values.parentRunId).toBe(root.runId);
  expect(run('tool').values.parentRunId).toBe(root.runId);
});

test('the root has the id that the client uses for feedback', () => {
  expect(run('agent').runId).toBe(clientRootId);
});

test('inputs, outputs, tags and metadata are preserved', () => {
  expect(texts(run('agent').values)).toMatchObject({
    runType: 'chain',
    inputs: '{"text":"hi"}',
    outputs: '{"done":true}',
    tags: '["a","b"]',
  });
  expect(metadataOf(run('agent').values)).toMatchObject({ user: 'ada', nested: { deep: [1] } });
});

test('the model call has its usage', () => {
  const { values } = run('model');
  expect(texts(values)).toMatchObject({
    runType: 'llm',
    promptTokens: 7,
    completionTokens: 5,
    totalTokens: 12,
    usageDetails: '{"prompt_token_details":{"cache_read":2}}',
    inputs: '{"input":"hi"}',
  });
  expect(texts(values).outputs).toContain('Grüß \\"Gott\\"');
  expect(metadataOf(values)).toMatchObject({ ls_model_name: 'gpt-4o', ls_provider: 'openai' });
});

test('the error is the text that the run reported', () => {
  expect(texts(run('tool').values).error).toMatch(/^"Error: out of order/);
  expect(run('model').values.error).toBeUndefined();
});
