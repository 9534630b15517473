import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { rootRun, sendRuns } from './send-runs.ts';
import { startToolServer } from './start-tools.ts';

const server = forSuite(() => startToolServer());

const ask = (url: string, payload: object) => server.ask('POST', url, payload);

it('resources are runs, prompts and datasets', async () => {
  const run = rootRun('resources');
  await sendRuns(server, [run]);
  await ask('/repos', { repo_handle: 'zebra', is_public: false, description: 'Stripes' });
  await ask('/commits/-/zebra', { manifest: { template: 'Hi {name}' } });
  const { id } = await ask('/datasets', { name: 'animals & more', description: 'Zoo' });
  await ask('/examples', { dataset_id: id, inputs: { n: 1 } });
  const client = await server.connect();
  const { resourceTemplates } = await client.listResourceTemplates();
  expect(resourceTemplates.map(({ uriTemplate }) => uriTemplate)).toEqual([
    'runlake://runs/{run_id}',
    'runlake://prompts/{prompt_name}',
    'runlake://datasets/{dataset}',
  ]);
  const prompts = await client.listResources();
  const datasets = await client.listResources({ cursor: prompts.nextCursor });
  expect([...prompts.resources, ...datasets.resources]).toEqual([
    { uri: 'runlake://prompts/zebra', name: 'zebra', description: 'Stripes', mimeType: 'application/json' },
    { uri: `runlake://datasets/${id}`, name: 'animals & more', description: 'Zoo', mimeType: 'application/json' },
  ]);
  expect(datasets.nextCursor).toBeUndefined();
  const read = async (uri: string) => {
    const [content] = (await client.readResource({ uri })).contents;
    return JSON.parse((content as { text: string }).text);
  };
  expect(await read(`runlake://runs/${run.id}`)).toMatchObject({
    run: { id: run.id },
    outline: [expect.stringContaining('agent')],
  });
  expect(await read('runlake://prompts/zebra')).toMatchObject({ template: 'Hi {name}' });
  for (const name of [id, 'animals%20%26%20more'])
    expect(await read(`runlake://datasets/${name}`)).toMatchObject({
      dataset: { id },
      examples: [{ inputs: { n: 1 } }],
    });
  for (const uri of [
    `runlake://runs/${randomUUID()}`,
    'runlake://runs/x',
    'runlake://prompts/none',
    'runlake://other/x',
    'file:///etc/passwd',
    'runlake://datasets/%E0%A4',
    'runlake://datasets/a%00b',
  ])
    await expect(client.readResource({ uri })).rejects.toMatchObject({ code: -32_002 });
  for (const cursor of ['prompts:x', 'runs:0', 'datasets', '0'])
    await expect(client.listResources({ cursor })).rejects.toMatchObject({ code: -32_602 });
});

it('prompts of the hub are prompts', async () => {
  await ask('/repos', { repo_handle: 'without-commit', is_public: false });
  await ask('/repos', { repo_handle: 'trip', is_public: false, description: 'Plans' });
  await ask('/commits/-/trip', { manifest: { template: 'Plan {city}.' } });
  const client = await server.connect();
  const { prompts } = await client.listPrompts();
  expect(prompts.find(({ name }) => name === 'trip')).toEqual({
    name: 'trip',
    description: 'Plans',
    arguments: [{ name: 'city', required: true }],
  });
  expect(prompts.find(({ name }) => name === 'without-commit')).toMatchObject({ arguments: [] });
  expect(await client.getPrompt({ name: 'trip', arguments: { city: 'Lyon' } })).toMatchObject({
    description: 'Plans',
    messages: [{ role: 'user', content: { type: 'text', text: 'Plan Lyon.' } }],
  });
  await expect(client.getPrompt({ name: 'trip' })).rejects.toMatchObject({
    code: -32_602,
    message: expect.stringContaining('The prompt needs a value for city.'),
  });
  for (const name of ['none', 'a/b/c'])
    await expect(client.getPrompt({ name })).rejects.toMatchObject({ code: -32_602 });
});

it('lists of large prompts and datasets have their descriptions and variables in part, and block nothing', async () => {
  const description = 'd'.repeat(10_000);
  const template = Array.from({ length: 9_000 }, (_, at) => `{variable${at}}`).join('');
  for (let at = 0; at < 20; at++) {
    await ask('/repos', { repo_handle: `large-${at}`, is_public: false, description });
    await ask(`/commits/-/large-${at}`, { manifest: { template } });
    await ask('/datasets', { name: `large-${at}`, description: description.repeat(10) });
  }
  const client = await server.connect();
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  const beganMs = performance.now();
  const { prompts } = await client.listPrompts();
  clearInterval(timer);
  expect(turns).toBeGreaterThan((performance.now() - beganMs) / 100);
  const large = prompts.filter(({ name }) => name.startsWith('large'));
  expect(large).toHaveLength(20);
  for (const each of large) expect(each.arguments?.length).toSatisfy((count: number) => count > 100 && count < 1_000);
  const { resources } = await client.listResources({ cursor: 'datasets:0' });
  const shown = resources.find(({ name }) => name === 'large-0')?.description;
  expect(shown).toBe(`${description}… (+90000 chars)`);
});
