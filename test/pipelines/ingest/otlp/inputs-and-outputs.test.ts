import { describe, expect, test } from 'vitest';
import { attributes, metadataOf, readDraft, readDraftTexts, texts } from './requests.ts';

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
      'text marked as text',
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
      'documents of the new conventions',
      {
        'gen_ai.operation.name': 'retrieval',
        'gen_ai.retrieval.query.text': 'q',
        'gen_ai.retrieval.documents': '[{"id":"one","score":0.5}]',
      },
      '{"input":"q"}',
      '{"documents":[{"id":"one","score":0.5}]}',
    ],
    [
      'documents that a reranker of OpenInference has ordered',
      {
        'openinference.span.kind': 'RERANKER',
        'reranker.query': 'q',
        'reranker.output_documents.0.document.content': 'one',
        'reranker.output_documents.0.document.score': 0.5,
      },
      '{"input":"q"}',
      '{"documents":[{"page_content":"one","score":0.5}]}',
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
      'embeddings repeated in the value',
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
    [
      'a response of the Vercel AI SDK with tool calls, whose text is empty when it streams',
      {
        'ai.prompt.messages': '[{"role":"user"}]',
        'ai.response.text': '',
        'ai.response.reasoning': 'hm',
        'ai.response.toolCalls': '[{"toolName":"f"}]',
      },
      '{"input":[{"role":"user"}]}',
      '{"output":"","reasoning":"hm","tool_calls":[{"toolName":"f"}]}',
    ],
    ['a response of the Vercel AI SDK', { 'ai.response.text': 'hi' }, undefined, '{"output":"hi"}'],
    [
      'embeddings of the Vercel AI SDK, each value as JSON in a text',
      { 'ai.values': ['"one"', 'no JSON', '5 '], 'ai.embeddings': ['[0.5,-1]', '[1]'] },
      '{"input":["one","no JSON",5 ]}',
      '{"output":[[0.5,-1],[1]]}',
    ],
    [
      'one embedding of the Vercel AI SDK',
      { 'ai.value': '"one"', 'ai.embedding': '[0.5,-1]' },
      '{"input":"one"}',
      '{"output":[0.5,-1]}',
    ],
    [
      'an agent of Pydantic AI',
      { final_result: 'Sunny', 'pydantic_ai.all_messages': '[{"role":"user","parts":[]}]' },
      undefined,
      '{"messages":[{"role":"user","parts":[]}],"output":"Sunny"}',
    ],
    [
      'an agent of an older Pydantic AI',
      { prompt: 'hi', all_messages_events: '[{"event.name":"gen_ai.user.message"}]' },
      '{"input":"hi"}',
      '{"messages":[{"event.name":"gen_ai.user.message"}]}',
    ],
    [
      'a model call of an older Pydantic AI',
      {
        events:
          ' [{"event.name":"gen_ai.user.message","n":1.0},{"event.name": "gen_ai.choice"},{"event.name":"gen_ai.tool.message"}]',
      },
      '{"messages":[{"event.name":"gen_ai.user.message","n":1.0},{"event.name":"gen_ai.tool.message"}]}',
      '{"choices":[{"event.name": "gen_ai.choice"}]}',
    ],
    [
      'a tool call of an older Pydantic AI',
      { tool_arguments: '{"city":"Paris"}', tool_response: 'sunny' },
      '{"city":"Paris"}',
      '{"output":"sunny"}',
    ],
    [
      'a tool call of Google ADK',
      {
        'gcp.vertex.agent.llm_request': '{}',
        'gcp.vertex.agent.tool_call_args': '{"a":1}',
        'gcp.vertex.agent.tool_response': '{"b":2}',
      },
      '{"a":1}',
      '{"b":2}',
    ],
    ['Logfire', { request_data: '{"q":1}', response_data: '{"r":2}' }, '{"q":1}', '{"r":2}'],
  ];

  test.each(cases)('%s', (_name, values, inputs, outputs) => {
    const run = readDraftTexts(values);
    expect([run.inputs, run.outputs]).toEqual([inputs, outputs]);
    for (const json of [inputs, outputs]) if (json !== undefined) expect(() => JSON.parse(json)).not.toThrow();
  });

  test('an embedding span of OpenInference has its model, parameters and tokens, and no vectors in its metadata', () => {
    const draft = readDraft({
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

  test('a name that collides with another one stays metadata', () => {
    const values = { 'gen_ai.prompt.0.content': 'text', 'gen_ai.prompt.0.content.type': 'odd' };
    const draft = readDraft({ attributes: attributes(values) });
    expect(texts(draft.values).inputs).toBe('{"messages":[{"content":"text"}]}');
    expect(metadataOf(draft.values)).toEqual({ 'gen_ai.prompt.0.content.type': 'odd' });
  });

  test.each([
    ['text', 'open day'],
    ['other events', '[{"event.name":"click"}]'],
    ['events of which one is another', '[{"event.name":"gen_ai.user.message"},{"event.name":"click"}]'],
    ['no list', '{"a":{"event.name":"gen_ai.user.message"}}'],
    ['damaged JSON', '[{"event.name":"gen_ai.user.message"}'],
  ])('%s in the attribute events stays metadata', (_what, events) => {
    const draft = readDraft({ attributes: attributes({ events, 'input.value': 'x' }) });
    expect(texts(draft.values)).toMatchObject({ inputs: '{"input":"x"}' });
    expect(draft.values.outputs).toBeUndefined();
    expect(metadataOf(draft.values)).toEqual({ events });
  });

  test('messages and choices sent as events', () => {
    const event = (name: string, values: Record<string, unknown>) => ({ name, attributes: attributes(values) });
    const { inputs, outputs, events } = texts(
      readDraft({
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
      readDraft({
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
