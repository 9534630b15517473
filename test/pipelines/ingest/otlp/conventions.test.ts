import { describe, expect, test } from 'vitest';
import { attributes, metadataOf, readDraft, readDraftTexts, startMicros, startNanos, texts } from './requests.ts';

describe('run types', () => {
  test.each([
    [{}, 'chain'],
    [{ 'langsmith.span.kind': 'LLM' }, 'llm'],
    [{ 'langsmith.span.kind': 'parser', 'gen_ai.operation.name': 'chat' }, 'parser'],
    [{ 'langsmith.span.kind': 'agent' }, 'chain'],
    [{ 'openinference.span.kind': 'LLM' }, 'llm'],
    [{ 'openinference.span.kind': 'RERANKER' }, 'retriever'],
    [{ 'openinference.span.kind': 'AGENT' }, 'chain'],
    [{ 'openinference.span.kind': 'EMBEDDING' }, 'embedding'],
    [{ 'traceloop.span.kind': 'tool' }, 'tool'],
    [{ 'traceloop.span.kind': 'workflow', 'gen_ai.request.model': 'm' }, 'chain'],
    [{ 'llm.request.type': 'chat' }, 'llm'],
    [{ 'traceloop.llm.request.type': 'embedding' }, 'embedding'],
    [{ 'gen_ai.operation.name': 'text_completion' }, 'llm'],
    [{ 'gen_ai.operation.name': 'embeddings' }, 'embedding'],
    [{ 'gen_ai.operation.name': 'execute_tool' }, 'tool'],
    [{ 'gen_ai.operation.name': 'plan', 'gen_ai.request.model': 'm' }, 'chain'],
    [{ 'gen_ai.operation.name': 'rerank', 'gen_ai.request.model': 'm' }, 'retriever'],
    // Calls of LiteLLM that its proxy makes.
    [{ 'llm.request.type': 'aembedding' }, 'embedding'],
    [{ 'llm.request.type': 'arerank' }, 'retriever'],
    [{ 'gen_ai.operation.name': 'invoke_agent', 'gen_ai.request.model': 'm' }, 'chain'],
    [{ 'gen_ai.tool.name': 'search' }, 'tool'],
    [{ 'ai.operationId': 'ai.streamText.doStream' }, 'llm'],
    [{ 'ai.operationId': 'ai.rerank.doRerank', 'gen_ai.request.model': 'm' }, 'retriever'],
    [{ 'ai.operationId': 'ai.toolCall' }, 'tool'],
    [{ 'llm.prompt_template.variables': '{}' }, 'prompt'],
    [{ 'retrieval.documents.0.document.content': 'x' }, 'retriever'],
    [{ 'gen_ai.request.model': 'm' }, 'llm'],
  ])('%j is %s', (values, runType) => {
    expect(readDraftTexts(values).runType).toBe(runType);
  });
});

describe('names', () => {
  test.each([
    [{}, 'step'],
    [{ 'langsmith.trace.name': 'own', 'traceloop.entity.name': 'entity' }, 'own'],
    [{ 'traceloop.entity.name': 'entity' }, 'entity'],
    [{ 'tool.name': 'search', 'openinference.span.kind': 'TOOL' }, 'search'],
    [{ 'tool.name': 'search' }, 'step'],
  ])('%j is %s', (values, name) => {
    expect(readDraftTexts(values).name).toBe(name);
  });

  test('a span without a name is unknown', () => {
    expect(readDraft({ name: '' }).values.name).toBe('unknown');
  });
});

describe('usage', () => {
  test.each([
    [{ 'gen_ai.usage.input_tokens': 3, 'gen_ai.usage.output_tokens': 4 }, [3, 4, 7], undefined],
    [
      { 'gen_ai.usage.prompt_tokens': 3, 'gen_ai.usage.completion_tokens': 4, 'llm.usage.total_tokens': 9 },
      [3, 4, 9],
      undefined,
    ],
    [{ 'llm.token_count.prompt': '3', 'llm.token_count.completion': 4.0 }, [3, 4, 7], undefined],
    [{ 'ai.usage.promptTokens': 3, 'ai.usage.completionTokens': { doubleValue: 4 } }, [3, 4, 7], undefined],
    [
      {
        'gen_ai.usage.input_tokens': 10,
        'gen_ai.usage.cache_read.input_tokens': 6,
        'gen_ai.usage.details.reasoning_tokens': 2,
      },
      [10, undefined, 10],
      '{"prompt_token_details":{"cache_read":6},"completion_token_details":{"reasoning":2}}',
    ],
    [
      {
        'langsmith.usage_metadata':
          '{"input_tokens":5,"output_tokens":6,"total_tokens":11,"input_token_details":{"audio":1},"total_cost":0.25}',
        'gen_ai.usage.input_tokens': 99,
      },
      [5, 6, 11],
      '{"prompt_token_details":{"audio":1}}',
    ],
    // The Python SDK writes details as a Python literal, and states them in the outputs as well.
    [
      {
        'gen_ai.usage.input_tokens': 9,
        'gen_ai.usage.output_tokens': 1,
        'gen_ai.usage.input_token_details': "{'cache_read': 8}",
        'gen_ai.completion':
          '{"usage_metadata":{"input_tokens":9,"output_tokens":1,"total_tokens":10,"input_token_details":{"cache_read":8}}}',
      },
      [9, 1, 10],
      '{"prompt_token_details":{"cache_read":8}}',
    ],
    [
      {
        'gen_ai.usage.input_tokens': 9,
        'gen_ai.completion': '{"usage_metadata":{"input_tokens":2,"input_token_details":{"cache_read":1}}}',
      },
      [9, undefined, 9],
      undefined,
    ],
    [
      {
        'gen_ai.usage.input_tokens': 9,
        'gen_ai.usage.total_tokens': 12,
        'gen_ai.completion':
          '{"usage":{"prompt_tokens":9,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}',
      },
      [9, undefined, 12],
      '{"prompt_token_details":{"cache_read":8}}',
    ],
    [
      { 'gen_ai.usage.total_tokens': 12, 'gen_ai.completion': '{"usage":{"prompt_tokens":2,"completion_tokens":1}}' },
      [undefined, undefined, 12],
      undefined,
    ],
    [{ 'ai.usage.tokens': 7 }, [7, undefined, 7], undefined],
    [
      {
        'gen_ai.usage.input_tokens': 20,
        'gen_ai.usage.output_tokens': 9,
        'gen_ai.usage.cache_write.input_tokens': 5,
        'gen_ai.usage.audio.input_tokens': 4,
        'gen_ai.usage.image.input_tokens': 3,
        'gen_ai.usage.audio.output_tokens': 2,
        'gen_ai.usage.image.output_tokens': 1,
      },
      [20, 9, 29],
      '{"prompt_token_details":{"cache_creation":5,"audio":4,"image":3},"completion_token_details":{"audio":2,"image":1}}',
    ],
    // Strands, Pydantic AI and OpenLLMetry.
    [
      {
        'gen_ai.usage.input_tokens': 9,
        'gen_ai.usage.cache_write_input_tokens': 3,
        'gen_ai.usage.details.input_audio_tokens': 2,
        'gen_ai.usage.details.output_audio_tokens': 4,
        'llm.usage.reasoning_tokens': 5,
      },
      [9, undefined, 9],
      '{"prompt_token_details":{"cache_creation":3,"audio":2},"completion_token_details":{"reasoning":5,"audio":4}}',
    ],
    [
      { 'gen_ai.usage.input_tokens': 9, 'gen_ai.usage.details.cached_tokens': 8 },
      [9, undefined, 9],
      '{"prompt_token_details":{"cache_read":8}}',
    ],
    [
      { 'gen_ai.usage.input_tokens': -1, 'gen_ai.usage.output_tokens': 'many' },
      [undefined, undefined, undefined],
      undefined,
    ],
  ])('%j', (values, [prompt, completion, total], details) => {
    const run = readDraftTexts({ 'langsmith.span.kind': 'llm', ...values });
    expect([run.promptTokens, run.completionTokens, run.totalTokens]).toEqual([prompt, completion, total]);
    expect(run.usageDetails).toBe(details);
  });

  test('costs are kept as decimals', () => {
    const run = readDraftTexts({ 'langsmith.span.kind': 'llm', 'llm.cost.prompt': 0.0000012, 'llm.cost.total': 1.5 });
    expect([run.promptCost, run.totalCost]).toEqual(['0.0000012', '1.5']);
  });

  test.each(['gen_ai.usage', 'gen_ai.cost'])('costs that %s states', (prefix) => {
    const costs = { [`${prefix}.input_cost`]: 0.5, [`${prefix}.output_cost`]: 0.25, [`${prefix}.total_cost`]: 1 };
    const run = readDraftTexts({ 'langsmith.span.kind': 'llm', ...costs });
    expect([run.promptCost, run.completionCost, run.totalCost]).toEqual(['0.5', '0.25', '1']);
  });

  test('only model calls have tokens of their own; other spans keep them in the metadata', () => {
    const draft = readDraft({ attributes: attributes({ 'gen_ai.usage.input_tokens': 3 }) });
    expect(draft.values.promptTokens).toBeUndefined();
    expect(metadataOf(draft.values)).toEqual({ usage_metadata: { input_tokens: 3 } });
  });

  test('a value that is not a count stays an attribute', () => {
    const draft = readDraft({ attributes: attributes({ 'gen_ai.usage.input_tokens': 'many' }) });
    expect(metadataOf(draft.values)).toEqual({ 'gen_ai.usage.input_tokens': 'many' });
  });

  test('the time of the first token comes from an event', () => {
    const events = [
      { name: 'ai.stream.firstChunk', timeUnixNano: String(startNanos + 5_000_000n) },
      { name: 'new_token', timeUnixNano: String(startNanos + 9_000_000n) },
    ];
    for (const values of [{}, { 'gen_ai.usage.input_tokens': 1 }]) {
      const run = texts(
        readDraft({ events, attributes: attributes({ 'langsmith.span.kind': 'llm', ...values }) }).values,
      );
      expect(run.firstTokenTimeMicros).toBe(startMicros + 5_000);
      expect(JSON.parse(run.events as string)[0].name).toBe('new_token');
    }
  });

  test.each([{}, { 'gen_ai.usage.input_tokens': 1 }])(
    'without an event, the time of the first token comes from the stated seconds, with %j',
    (values) => {
      const stated = { 'gen_ai.operation.name': 'chat', 'gen_ai.response.time_to_first_chunk': 0.25, ...values };
      const run = readDraftTexts(stated);
      expect(run.firstTokenTimeMicros).toBe(startMicros + 250_000);
      const events = [{ name: 'new_token', timeUnixNano: String(startNanos + 9_000_000n) }];
      expect(readDraftTexts(stated, { events }).firstTokenTimeMicros).toBe(startMicros + 9_000);
      expect(
        readDraftTexts({ ...stated, 'gen_ai.operation.name': 'invoke_agent' }).firstTokenTimeMicros,
      ).toBeUndefined();
    },
  );
});

describe('errors', () => {
  const exception = (values: Record<string, unknown>) => ({ name: 'exception', attributes: attributes(values) });
  test.each([
    ['no status', {}, undefined],
    ['OK', { status: { code: 1, message: 'fine' } }, undefined],
    ['a message', { status: { code: 2, message: 'it "broke"' } }, '"it \\"broke\\""'],
    ['no text at all', { status: { code: 2 } }, '"Error"'],
    [
      'the type as an attribute only',
      { status: { code: 2 }, attributes: attributes({ 'error.type': 'timeout' }) },
      '"timeout"',
    ],
    ['a type only', { status: { code: 2 }, events: [exception({ 'exception.type': 'T' })] }, '"T"'],
    [
      'an exception with a stack',
      {
        status: { code: 2, message: 's' },
        events: [exception({ 'exception.message': 'm', 'exception.stacktrace': 'at x' })],
      },
      '"m\\n\\nat x"',
    ],
    ['an exception without a status', { events: [exception({ 'exception.message': 'm' })] }, '"m"'],
    [
      'an exception that was handled',
      { status: { code: 1 }, events: [exception({ 'exception.message': 'm' })] },
      undefined,
    ],
    [
      'the last of several',
      { events: [exception({ 'exception.message': 'first' }), exception({ 'exception.message': 'last' })] },
      '"last"',
    ],
  ])('%s', (_name, fields, error) => {
    const run = texts(readDraft(fields).values);
    expect(run.error).toBe(error);
    if ('events' in fields) expect(run.events).toContain('"exception"');
  });

  // The Python SDK sets OK when the run begins, which a later ERROR does not replace, and adds its own stack trace.
  test.each([1, 2])('a failed run of the Python SDK with status %i', (code) => {
    const message = "ValueError('late')\n\nTraceback: …";
    const events = [exception({ 'exception.message': message, 'exception.stacktrace': `Exception: ${message}` })];
    const run = texts(readDraft({ status: { code }, events }, undefined, { name: 'langsmith' }).values);
    expect(run.error).toBe(JSON.stringify(message));
  });
});

describe('metadata and other attributes', () => {
  test('every attribute is stored in exactly one field', () => {
    const values = {
      'langsmith.metadata.user': 'ada',
      'langsmith.metadata.object': '{"a":[1]}',
      'traceloop.association.properties.team': 'x',
      'gen_ai.system': 'openai',
      'gen_ai.response.model': 'gpt-4o-2024',
      'gen_ai.request.model': 'gpt-4o',
      'gen_ai.request.stop_sequences': ['a'],
      'llm.invocation_parameters': '{"seed": 12345678901234567890, "model": "other"}',
      'session.id': 's1',
      metadata: '{"user":"other","plan":"pro","größe":1}',
      'langsmith.span.tags': 'a, b,,',
      'langsmith.reference_example_id': '11111111-2222-3333-4444-555555555555',
      'gen_ai.serialized.name': 'fn',
      'gen_ai.serialized.doc': 'does',
      'langsmith.trace.session_name': 'shop',
      'langsmith.traceable': 'true',
      'custom.one': 1,
    };
    const draft = readDraft({ attributes: attributes(values), traceState: 'k=v', droppedAttributesCount: 3 });
    const { extra, ...run } = texts(draft.values);
    expect(run).toMatchObject({
      tags: '["a","b"]',
      referenceExampleId: '11111111-2222-3333-4444-555555555555',
      serialized: '{"name":"fn","doc":"does"}',
    });
    expect(draft.projectName).toBe('shop');
    expect(extra).toBe(
      '{"invocation_params":{"seed":12345678901234567890,"model":"other","stop":["a"]},' +
        '"metadata":{"user":"ada","object":{"a":[1]},"team":"x","ls_provider":"openai","session_id":"s1",' +
        '"ls_model_name":"gpt-4o-2024","plan":"pro","größe":1,' +
        '"gen_ai.response.model":"gpt-4o-2024","gen_ai.request.model":"gpt-4o","custom.one":1},' +
        '"otel":{"trace_state":"k=v","dropped_attributes_count":3}}',
    );
  });

  test('an embedding of the Vercel AI SDK has the name of its model, by which its price is found', () => {
    const values = { 'ai.operationId': 'ai.embed.doEmbed', 'ai.model.id': 'text-embedding-3-small' };
    expect(metadataOf(readDraft({ attributes: attributes(values) }).values)).toMatchObject({
      ls_model_name: 'text-embedding-3-small',
    });
  });

  test('a span attribute overrides its scope, and the scope overrides the resource', () => {
    const own = attributes({ shared: 'span' });
    const draft = readDraft(
      { attributes: own },
      { attributes: attributes({ shared: 'resource', both: 'resource', r: 1 }) },
      { name: 'lib', version: '2', attributes: attributes({ shared: 'scope', both: 'scope' }) },
    );
    expect(metadataOf(draft.values)).toEqual({
      shared: 'span',
      'otel.scope.name': 'lib',
      'otel.scope.version': '2',
      both: 'scope',
      r: 1,
    });
  });

  test('tags as a list', () => {
    expect(readDraftTexts({ 'langsmith.span.tags': ['a,b', 'c'] }).tags).toBe('["a,b","c"]');
  });
});
