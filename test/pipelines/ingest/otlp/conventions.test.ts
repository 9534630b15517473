import { describe, expect, test } from 'vitest';
import { attributes, draftOf, metadataOf, startMicros, startNanos, texts, textsOf } from './requests.ts';

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
    [{ 'gen_ai.operation.name': 'invoke_agent', 'gen_ai.request.model': 'm' }, 'chain'],
    [{ 'gen_ai.tool.name': 'search' }, 'tool'],
    [{ 'ai.operationId': 'ai.streamText.doStream' }, 'llm'],
    [{ 'ai.operationId': 'ai.toolCall' }, 'tool'],
    [{ 'llm.prompt_template.variables': '{}' }, 'prompt'],
    [{ 'retrieval.documents.0.document.content': 'x' }, 'retriever'],
    [{ 'gen_ai.request.model': 'm' }, 'llm'],
  ])('%j is %s', (values, runType) => {
    expect(textsOf(values).runType).toBe(runType);
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
    expect(textsOf(values).name).toBe(name);
  });

  test('a span without a name is unknown', () => {
    expect(draftOf({ name: '' }).values.name).toBe('unknown');
  });
});

describe('inputs and outputs', () => {
  const cases: ReadonlyArray<readonly [string, Record<string, unknown>, string | undefined, string | undefined]> = [
    ['none', {}, undefined, undefined],
    [
      'JSON objects, byte for byte',
      { 'gen_ai.prompt': '{ "n": 12345678901234567890, "a":1,"a":2}', 'gen_ai.completion': '{"\\u0041":1.0}' },
      '{ "n": 12345678901234567890, "a":1,"a":2}',
      '{"\\u0041":1.0}',
    ],
    ['arrays', { 'input.value': '[1, 2]', 'output.value': '[]' }, '{"input":[1, 2]}', '{"output":[]}'],
    ['text', { 'input.value': 'hi {', 'output.value': '{not json}' }, '{"input":"hi {"}', '{"output":"{not json}"}'],
    [
      'text that is a JSON scalar',
      { 'input.value': '12', 'output.value': '"x"' },
      '{"input":"12"}',
      '{"output":"\\"x\\""}',
    ],
    [
      'text that says it is text',
      { 'input.value': '{"a":1}', 'input.mime_type': 'text/plain' },
      '{"input":"{\\"a\\":1}"}',
      undefined,
    ],
    [
      'structured values',
      {
        'gen_ai.prompt': { kvlistValue: { values: [{ key: 'q', value: { intValue: '9007199254740993' } }] } },
        'gen_ai.completion': ['a', 1],
      },
      '{"q":9007199254740993}',
      '{"output":["a",1]}',
    ],
    ['a number', { 'gen_ai.prompt': 5, 'gen_ai.completion': true }, '{"input":5}', '{"output":true}'],
    [
      'bytes that are JSON',
      { 'gen_ai.prompt': { bytesValue: Buffer.from('{"b":1}').toString('base64') } },
      '{"b":1}',
      undefined,
    ],
    [
      'flattened messages, out of order and with gaps',
      {
        'gen_ai.prompt.10.role': 'user',
        'gen_ai.prompt.10.content': 'hi',
        'gen_ai.prompt.2.message.role': 'system',
        'gen_ai.completion.0.role': 'assistant',
        'gen_ai.completion.0.tool_calls.0.name': 'search',
        'gen_ai.completion.0.tool_calls.0.arguments': '{"q":1}',
      },
      '{"messages":[{"role":"system"},{"role":"user","content":"hi"}]}',
      '{"messages":[{"role":"assistant","tool_calls":[{"name":"search","arguments":"{\\"q\\":1}"}]}]}',
    ],
    [
      'OpenInference: messages, without the value that repeats them',
      {
        'llm.input_messages.0.message.role': 'user',
        'llm.input_messages.0.message.contents.0.message_content.text': 'hi',
        'llm.output_messages.0.message.tool_calls.0.tool_call.function.name': 'f',
        'input.value': '{"messages":1}',
        'input.mime_type': 'application/json',
        'output.value': 'text',
        'output.mime_type': 'text/plain',
      },
      '{"messages":[{"role":"user","contents":[{"text":"hi"}]}]}',
      '{"messages":[{"tool_calls":[{"function":{"name":"f"}}]}]}',
    ],
    [
      'the new conventions, as text and as values',
      {
        'gen_ai.input.messages': '[{"role":"user","parts":[]}]',
        'gen_ai.system_instructions': '[{"type":"text","content":"be kind"}]',
        'gen_ai.output.messages': [{ kvlistValue: { values: [{ key: 'role', value: { stringValue: 'assistant' } }] } }],
      },
      '{"messages":[{"role":"user","parts":[]}],"system_instructions":[{"type":"text","content":"be kind"}]}',
      '{"messages":[{"role":"assistant"}]}',
    ],
    [
      'Traceloop entities',
      { 'traceloop.entity.input': '{"args":[1]}', 'traceloop.entity.output': '"done"' },
      '{"args":[1]}',
      '{"output":"\\"done\\""}',
    ],
    [
      'retrieved documents',
      {
        'input.value': 'q',
        'retrieval.documents.0.document.content': 'one',
        'retrieval.documents.0.document.metadata': '{"page": 1}',
        'retrieval.documents.1.document.content': 'two',
      },
      '{"input":"q"}',
      '{"documents":[{"page_content":"one","metadata":{"page": 1}},{"page_content":"two"}]}',
    ],
    [
      'embeddings of OpenInference',
      {
        'input.value': 'one',
        'embedding.embeddings.0.embedding.text': 'one',
        'embedding.embeddings.0.embedding.vector': [{ doubleValue: 0.5 }, { doubleValue: -1.5 }],
      },
      '{"input":"one"}',
      '{"embeddings":[{"text":"one","vector":[0.5,-1.5]}]}',
    ],
    [
      'embeddings that the value repeats',
      { 'output.value': '{"data":[[0.5]]}', 'embedding.embeddings.0.embedding.vector': [{ doubleValue: 0.5 }] },
      undefined,
      '{"data":[[0.5]]}',
    ],
    [
      'a Vercel AI SDK tool call',
      { 'ai.toolCall.args': '{"x":1}', 'ai.toolCall.result': '{"y":2}' },
      '{"x":1}',
      '{"y":2}',
    ],
  ];

  test.each(cases)('%s', (_name, values, inputs, outputs) => {
    const run = textsOf(values);
    expect([run.inputs, run.outputs]).toEqual([inputs, outputs]);
    for (const json of [inputs, outputs]) if (json !== undefined) expect(() => JSON.parse(json)).not.toThrow();
  });

  test('an embedding span of OpenInference says its model, parameters and tokens, and no vectors in its metadata', () => {
    const draft = draftOf({
      attributes: attributes({
        'openinference.span.kind': 'EMBEDDING',
        'embedding.model_name': 'text-embedding-3-small',
        'embedding.invocation_parameters': '{"dimensions":2}',
        'embedding.embeddings.0.embedding.vector': [{ doubleValue: 0.5 }],
        'embedding.embeddings.0.embedding.text': 'one',
        'input.value': 'one',
        'input.mime_type': 'text/plain',
        'output.value': '[[0.5]]',
        'output.mime_type': 'application/json',
        'llm.token_count.prompt': 7,
        'llm.token_count.total': 7,
      }),
    });
    expect(draft.values).toMatchObject({ runType: 'embedding', promptTokens: 7, totalTokens: 7 });
    expect(metadataOf(draft.values)).toEqual({
      'openinference.span.kind': 'EMBEDDING',
      ls_model_name: 'text-embedding-3-small',
      usage_metadata: { input_tokens: 7, total_tokens: 7 },
    });
    expect(texts(draft.values)).toMatchObject({ inputs: '{"input":"one"}', outputs: '{"output":[[0.5]]}' });
    expect(JSON.parse(texts(draft.values).extra as string)).toMatchObject({ invocation_params: { dimensions: 2 } });
  });

  test('a name that runs into another one stays metadata', () => {
    const values = { 'gen_ai.prompt.0.content': 'text', 'gen_ai.prompt.0.content.type': 'odd' };
    const draft = draftOf({ attributes: attributes(values) });
    expect(texts(draft.values).inputs).toBe('{"messages":[{"content":"text"}]}');
    expect(metadataOf(draft.values)).toEqual({ 'gen_ai.prompt.0.content.type': 'odd' });
  });

  test('messages and choices that came as events', () => {
    const event = (name: string, values: Record<string, unknown>) => ({ name, attributes: attributes(values) });
    const { inputs, outputs, events } = texts(
      draftOf({
        events: [
          event('gen_ai.system.message', { content: 'be kind', 'gen_ai.system': 'openai' }),
          event('gen_ai.user.message', { content: 'hi', role: 'human' }),
          event('gen_ai.tool.message', { id: 'call_1', content: '42' }),
          event('gen_ai.assistant.message', { 'gen_ai.event.content': '{"role":"assistant","content":"earlier"}' }),
          event('gen_ai.choice', { index: 0, finish_reason: 'stop', message: '{"content":"yes"}' }),
          event('other', {}),
        ],
      }).values,
    );
    expect(JSON.parse(inputs as string)).toEqual({
      messages: [
        { role: 'system', content: 'be kind' },
        { content: 'hi', role: 'human' },
        { role: 'tool', tool_call_id: 'call_1', content: '42' },
        { role: 'assistant', content: 'earlier' },
      ],
    });
    expect(JSON.parse(outputs as string)).toEqual({
      choices: [{ index: 0, finish_reason: 'stop', message: { content: 'yes' } }],
    });
    expect(events).toBe('[{"name":"other"}]');
  });

  test('content events', () => {
    const content = (name: string, key: string, value: string) => ({ name, attributes: attributes({ [key]: value }) });
    const run = texts(
      draftOf({
        events: [
          content('gen_ai.content.prompt', 'gen_ai.prompt', '{"p":1}'),
          content('gen_ai.content.completion', 'gen_ai.completion', 'text'),
        ],
      }).values,
    );
    expect(run).toMatchObject({ inputs: '{"p":1}', outputs: '{"output":"text"}' });
    expect(run.events).toBeUndefined();
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
    [
      { 'gen_ai.usage.input_tokens': -1, 'gen_ai.usage.output_tokens': 'many' },
      [undefined, undefined, undefined],
      undefined,
    ],
  ])('%j', (values, [prompt, completion, total], details) => {
    const run = textsOf({ 'langsmith.span.kind': 'llm', ...values });
    expect([run.promptTokens, run.completionTokens, run.totalTokens]).toEqual([prompt, completion, total]);
    expect(run.usageDetails).toBe(details);
  });

  test('costs are kept as decimals', () => {
    const run = textsOf({ 'langsmith.span.kind': 'llm', 'llm.cost.prompt': 0.0000012, 'llm.cost.total': 1.5 });
    expect([run.promptCost, run.totalCost]).toEqual(['0.0000012', '1.5']);
  });

  test('only model calls carry tokens of their own; others keep them in the metadata', () => {
    const draft = draftOf({ attributes: attributes({ 'gen_ai.usage.input_tokens': 3 }) });
    expect(draft.values.promptTokens).toBeUndefined();
    expect(metadataOf(draft.values)).toEqual({ usage_metadata: { input_tokens: 3 } });
  });

  test('what is no count stays an attribute', () => {
    const draft = draftOf({ attributes: attributes({ 'gen_ai.usage.input_tokens': 'many' }) });
    expect(metadataOf(draft.values)).toEqual({ 'gen_ai.usage.input_tokens': 'many' });
  });

  test('the first token is told by an event', () => {
    const events = [
      { name: 'ai.stream.firstChunk', timeUnixNano: String(startNanos + 5_000_000n) },
      { name: 'new_token', timeUnixNano: String(startNanos + 9_000_000n) },
    ];
    for (const values of [{}, { 'gen_ai.usage.input_tokens': 1 }]) {
      const run = texts(
        draftOf({ events, attributes: attributes({ 'langsmith.span.kind': 'llm', ...values }) }).values,
      );
      expect(run.firstTokenTimeMicros).toBe(startMicros + 5_000);
      expect(JSON.parse(run.events as string)[0].name).toBe('new_token');
    }
  });
});

describe('errors', () => {
  const exception = (values: Record<string, unknown>) => ({ name: 'exception', attributes: attributes(values) });
  test.each([
    ['no status', {}, undefined],
    ['OK', { status: { code: 1, message: 'fine' } }, undefined],
    ['a message', { status: { code: 2, message: 'it "broke"' } }, '"it \\"broke\\""'],
    ['no text at all', { status: { code: 2 } }, '"Error"'],
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
    const run = texts(draftOf(fields).values);
    expect(run.error).toBe(error);
    if ('events' in fields) expect(run.events).toContain('"exception"');
  });
});

describe('metadata and the rest', () => {
  test('every attribute ends in one place', () => {
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
    const draft = draftOf({ attributes: attributes(values), traceState: 'k=v', droppedAttributesCount: 3 });
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

  test('scope before resource, and the span before both', () => {
    const own = attributes({ shared: 'span' });
    const draft = draftOf(
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
    expect(textsOf({ 'langsmith.span.tags': ['a,b', 'c'] }).tags).toBe('["a,b","c"]');
  });
});
