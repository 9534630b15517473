import { randomUUID } from 'node:crypto';
import { AIMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, askAs, startApi } from '../../start-api.ts';
import { createDataset, sendExampleParts } from './dataset-requests.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const client = forSuite(() => openClient(api, acme.adminKey, { autoBatchTracing: false }));

const ask = askAs(api, acme);

const transformation = (transformation_type: string, ...path: string[]) => ({ path, transformation_type });
const message = { type: 'object', required: ['role', 'content'] };
/** The schemas and transformations that the public service suggests for runs of chat models. */
const chatModel = {
  inputs_schema_definition: {
    type: 'object',
    required: ['messages'],
    properties: { messages: { type: 'array', items: message }, tools: { type: 'array' } },
  },
  outputs_schema_definition: { type: 'object', required: ['message'], properties: { message } },
  transformations: [
    transformation('remove_extra_fields', 'inputs'),
    transformation('convert_to_openai_message', 'inputs', 'messages'),
    transformation('convert_to_openai_tool', 'inputs', 'tools'),
    transformation('remove_extra_fields', 'outputs'),
    transformation('convert_to_openai_message', 'outputs', 'message'),
  ],
};

const addDataset = (fields: object) => createDataset(api, acme.adminKey, fields);

/** Creates an example, and returns its inputs and outputs. */
async function add(dataset_id: string, example: object) {
  const { status, body } = await ask('POST', '/examples', { dataset_id, ...example });
  return status === 200 ? { inputs: body.inputs, outputs: body.outputs } : { status, body };
}

/** Creates an example from JSON text, and returns the text of the response that reads it. */
async function addText(datasetId: string, inputs: string) {
  const id = randomUUID();
  const { status } = await sendExampleParts(api, { key: acme.adminKey, datasetId }, [
    [id, '{}'],
    [`${id}.inputs`, inputs],
  ]);
  expect(status).toBe(201);
  return (await api.server.inject({ url: `/examples/${id}`, headers: { 'x-api-key': acme.adminKey } })).body;
}

describe('transformations of a dataset', () => {
  it('are stored, changed, cleared and read, also by the stock SDK and without a key', async () => {
    const id = await addDataset(chatModel);
    const { transformations } = chatModel;
    expect((await ask('GET', `/datasets/${id}`)).body).toMatchObject({ transformations });
    expect(await client.readDataset({ datasetId: id })).toMatchObject({ transformations });
    const { share_token: token } = (await ask('PUT', `/datasets/${id}/share`)).body;
    const shared = await api.server.inject({ url: `/public/${token}/datasets` });
    expect(shared.json()).toMatchObject({ transformations });
    expect((await ask('PATCH', `/datasets/${id}`, { description: 'x' })).body).toMatchObject({ transformations });
    const one = [transformation('remove_system_messages', 'inputs', 'messages')];
    expect((await ask('PATCH', `/datasets/${id}`, { transformations: one })).body.transformations).toEqual(one);
    expect((await ask('PATCH', `/datasets/${id}`, { transformations: null })).body.transformations).toBeNull();
    expect((await ask('GET', `/datasets/${await addDataset({})}`)).body.transformations).toBeNull();
  });

  it.each([
    [
      transformation('extract_tools_from_run', 'inputs', 'tools'),
      400,
      /convert_to_openai_tool, remove_system_messages/,
    ],
    [transformation('constructor', 'inputs'), 400, /Supported types/],
    [transformation('remove_extra_fields', 'metadata'), 400, /must start with/],
    [transformation('convert_to_openai_tool', 'outputs', 'tools'), 400, /inputs.* and one name/],
    [transformation('convert_to_openai_tool', 'inputs', 'a', 'tools'), 400, /inputs.* and one name/],
    [transformation('remove_extra_fields'), 422, /path/],
    [{ path: ['inputs'] }, 422, /transformation_type/],
    [transformation('remove_extra_fields', 'inputs', ...Array(20).fill('a')), 422, /path/],
  ])('are refused if they are %j', async (wrong, status, reason) => {
    const body = { name: randomUUID(), transformations: [wrong] };
    const created = await ask('POST', '/datasets', body);
    expect([created.status, JSON.stringify(created.body)]).toEqual([status, expect.stringMatching(reason)]);
    const id = await addDataset({});
    expect((await ask('PATCH', `/datasets/${id}`, { transformations: [wrong] })).status).toBe(status);
  });

  it('convert a traced run of a LangChain chat model, with the tools of its invocation', async () => {
    const dataset = await addDataset(chatModel);
    const call = { id: 'c1', name: 'add', args: { a: 1 } };
    const sent = [
      new SystemMessage('be brief'),
      new HumanMessage({
        content: [
          { type: 'text', text: 'one' },
          { type: 'text', text: 'two' },
        ],
      }),
      new AIMessage({ content: '', tool_calls: [call] }),
      new ToolMessage({ content: '2', tool_call_id: 'c1' }),
    ];
    const id = randomUUID();
    const run = {
      ...{ id, trace_id: id, name: 'ChatModel', run_type: 'llm', start_time: '2026-01-01T00:00:00.000000Z' },
      dotted_order: `20260101T000000000000Z${id}`,
      inputs: { messages: [sent.map((each) => each.toJSON())] },
      outputs: { generations: [[{ text: 'done', message: new AIMessage('done').toJSON() }]], llm_output: {} },
      extra: { invocation_params: { tools: [{ name: 'add', description: 'adds', input_schema: { type: 'object' } }] } },
    };
    await ask('POST', '/runs', run);
    await expect.poll(() => ask('GET', `/runs/${id}`).then(({ status }) => status), { timeout: 20_000 }).toBe(200);
    const { inputs, outputs } = await add(dataset, { source_run_id: id, use_source_run_io: true });
    expect(inputs).toEqual({
      messages: [
        { role: 'system', content: 'be brief' },
        { role: 'user', content: 'one\ntwo' },
        {
          ...{ role: 'assistant', content: '' },
          tool_calls: [{ type: 'function', id: 'c1', function: { name: 'add', arguments: '{"a":1}' } }],
        },
        { role: 'tool', content: '2', tool_call_id: 'c1' },
      ],
      tools: [{ type: 'function', function: { name: 'add', description: 'adds', parameters: { type: 'object' } } }],
    });
    expect(outputs).toEqual({ message: { role: 'assistant', content: 'done' } });
  });

  it('keep the inputs and the message of a traced OpenAI call, and remove its other fields', async () => {
    const dataset = await addDataset(chatModel);
    const messages = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];
    const tools = [{ type: 'function', function: { name: 'f', strict: true } }, { type: 'web_search' }];
    const answer = { role: 'assistant', content: 'hello', refusal: null };
    const example = {
      inputs: { messages, tools, model: 'gpt' },
      outputs: { choices: [{ message: answer }], usage: {} },
    };
    expect(await add(dataset, example)).toEqual({ inputs: { messages, tools }, outputs: { message: answer } });
  });

  it('apply to bulk writes, changes and uploads before the schema is checked', async () => {
    const inputs_schema_definition = {
      ...{ type: 'object', additionalProperties: false, properties: { q: {}, list: {} } },
      allOf: [{ $ref: '#/$defs/more' }],
      $defs: { more: { properties: { n: {} } } },
    };
    const transformations = [
      transformation('remove_system_messages', 'inputs', 'list'),
      transformation('remove_extra_fields', 'inputs'),
    ];
    const definition = { ...inputs_schema_definition, additionalProperties: undefined, maxProperties: 3 };
    const dataset_id = await addDataset({ inputs_schema_definition: definition, transformations });
    const list = [
      { role: 'system', content: 'a' },
      'text',
      { type: 'system', content: 'b' },
      { role: 'user', content: 'c' },
    ];
    const inputs = { q: 1, n: 2, list, x: 3, y: 4 };
    const kept = { q: 1, n: 2, list: ['text', { role: 'user', content: 'c' }] };
    const made = await ask('POST', '/examples/bulk', [
      { dataset_id, inputs },
      { dataset_id, inputs: { q: 1 } },
    ]);
    expect(made.body.map((each: { inputs: object }) => each.inputs)).toEqual([kept, { q: 1 }]);
    const [{ id }] = made.body;
    expect((await ask('PATCH', `/examples/${id}`, { inputs: { ...inputs, q: 5 } })).body.inputs).toEqual({
      ...kept,
      q: 5,
    });
    expect((await ask('PATCH', `/examples/${id}`, { metadata: { m: 1 } })).body.inputs).toEqual({ ...kept, q: 5 });

    const form = new FormData();
    form.append('file', new Blob(['{"q":1,"x":2}\n']), 'rows.jsonl');
    for (const key of ['q', 'x']) form.append('input_keys', key);
    form.append('name', randomUUID());
    form.append('inputs_schema_definition', JSON.stringify(definition));
    form.append('transformations', JSON.stringify(transformations));
    const request = new Request('http://a', { method: 'POST', body: form });
    const uploaded = await api.server.inject({
      method: 'POST',
      url: '/datasets/upload',
      headers: { 'x-api-key': acme.adminKey, 'content-type': request.headers.get('content-type') as string },
      payload: Buffer.from(await request.arrayBuffer()),
    });
    expect(uploaded.json()).toMatchObject({ transformations, example_count: 1 });
    const [row] = (await ask('GET', `/examples?dataset=${uploaded.json().id}`)).body;
    expect(row.inputs).toEqual({ q: 1 });
  });

  it('leave values of other forms to the schema, and unchanged documents as they were sent', async () => {
    const strict = {
      inputs_schema_definition: chatModel.inputs_schema_definition,
      transformations: chatModel.transformations,
    };
    const dataset = await addDataset(strict);
    expect(await add(dataset, { inputs: { messages: 'hi' } })).toMatchObject({ status: 422 });
    expect(await add(dataset, { inputs: { prompt: 'hi' } })).toMatchObject({ status: 422 });
    const free = await addDataset({ transformations: chatModel.transformations });
    const text = '{"b":12345678901234567890,"a":{"role":7},"messages":[{"type":"human"},null,[]],"tools":{}}';
    expect(await addText(free, text)).toContain(`"inputs":${text},`);
    expect(await add(free, { inputs: {}, outputs: { message: [[1]] } })).toMatchObject({ outputs: { message: [[1]] } });
  });

  it('keep the digits of numbers in changed documents', async () => {
    const dataset = await addDataset({ transformations: [transformation('convert_to_openai_message', 'inputs', 'm')] });
    const content = String.raw`"\\\" 1.0 \\"`;
    const call = '{"id":"c","name":"f","args":{"id":12345678901234567890}}';
    const stored = await addText(
      dataset,
      `{"n":[0.10,-1E3,7],"m":{"type":"ai","content":${content},"tool_calls":[${call}]}}`,
    );
    expect(stored).toContain(`"inputs":{"n":[0.10,-1E3,7],"m":{"role":"assistant","content":${content},"tool_calls":`);
    expect(stored).toContain(String.raw`"arguments":"{\"id\":12345678901234567890}"`);
  });

  it('convert the content blocks of other providers', async () => {
    const dataset = await addDataset({
      transformations: [
        transformation('convert_to_openai_message', 'inputs', 'deep', 'list'),
        transformation('convert_to_openai_tool', 'inputs', 'tools'),
      ],
    });
    const use = { type: 'tool_use', id: 't', name: 'f', input: { x: 1 } };
    const list = [
      { type: 'ai', data: { content: [{ type: 'text', text: 'calling' }, use], tool_calls: [] } },
      { type: 'human', content: [{ type: 'tool_result', tool_use_id: 't', content: [{ type: 'text', text: 'r' }] }] },
      {
        type: 'human',
        content: ['see', { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA' } }],
      },
    ];
    const tools = [
      { toolSpec: { name: 'bedrock', inputSchema: { json: { type: 'object' } } } },
      { name: 'bare', parameters: {}, other: 1 },
      { title: 'titled', description: 'd', type: 'object', properties: {} },
      { type: 'object' },
    ];
    expect((await add(dataset, { inputs: { deep: { list }, tools } })).inputs).toEqual({
      deep: {
        list: [
          {
            ...{ role: 'assistant', content: 'calling' },
            tool_calls: [{ type: 'function', id: 't', function: { name: 'f', arguments: '{"x":1}' } }],
          },
          { role: 'tool', content: 'r', tool_call_id: 't' },
          {
            role: 'user',
            content: [
              { type: 'text', text: 'see' },
              { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } },
            ],
          },
        ],
      },
      tools: [
        { type: 'function', function: { name: 'bedrock', parameters: { type: 'object' } } },
        { type: 'function', function: { name: 'bare', parameters: {} } },
        {
          type: 'function',
          function: { name: 'titled', description: 'd', parameters: { type: 'object', properties: {} } },
        },
        { type: 'object' },
      ],
    });
  });
});
