import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { type Client, RunTree } from 'langsmith';
import { beforeAll, describe, expect, it } from 'vitest';
import { createTokenSigner } from '../../../../infra/signing/token-signer.ts';
import { signAttachmentToken } from '../../../../pipelines/attachments/attachment-urls.ts';
import { deleteProjectRuns } from '../../../../pipelines/projects/delete-projects.ts';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const secret = 'secret of these tests';
const signer = createTokenSigner(secret, 'attachments');

const api = forSuite(() => startApi({ services: { attachmentSigner: signer } }));
const organization = forSuite(() => addOrganization(api.database, 'attachments'));
let client: Client;
let apiUrl: string;
let runId: string;
let urls: Record<string, { presigned_url: string; mime_type: string }>;

const everyByte = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
const attachments: Record<string, [string, Buffer]> = {
  'every byte': ['image/png', Buffer.concat([everyByte, Buffer.from('\r\n--'), everyByte])],
  nothing: ['text/plain', Buffer.alloc(0)],
  large: ['application/octet-stream', randomBytes(5 * 1024 * 1024)],
  "it's (märchen)*%": ['text/html', Buffer.from('<script>alert(1)</script>')],
};

beforeAll(async () => {
  const [key] = organization.workspaceKeys;
  apiUrl = await api.listen();
  client = await openClient(api, key, { callerOptions: { maxRetries: 0 } });
  const run = new RunTree({ name: 'attached', run_type: 'chain', inputs: {}, client, attachments });
  runId = run.id;
  await run.postRun();
  await run.end({});
  await run.patchRun();
  await client.awaitPendingTraceBatches();
  const answer = await fetch(`${apiUrl}/runs/${runId}`, { headers: { 'x-api-key': key } });
  urls = ((await answer.json()) as { s3_urls: typeof urls }).s3_urls;
}, 60_000);

const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

describe('attachments sent by the stock JavaScript client', () => {
  it.each(Object.entries(attachments))(
    '%s: are returned byte for byte, without a key',
    async (name, [type, content]) => {
      const { presigned_url: url = '', mime_type } = urls[`attachment.${name}`] ?? {};
      expect(mime_type).toBe(type);
      expect(url).toMatch(new RegExp(`^${apiUrl}/api/v1/public/attachments/[\\w.-]+$`));
      const answer = await fetch(url);
      const bytes = new Uint8Array(await answer.arrayBuffer());
      expect([answer.status, bytes.length, digest(bytes)]).toEqual([200, content.length, digest(content)]);
      expect(Object.fromEntries(answer.headers)).toMatchObject({
        'content-type': type,
        'content-length': String(content.length),
        'content-security-policy': "default-src 'none'; sandbox",
        'x-content-type-options': 'nosniff',
        'cache-control': 'private, no-store',
      });
    },
  );

  it('are all listed on the run', async () => {
    expect(Object.keys(urls).sort()).toEqual(
      Object.keys(attachments)
        .map((name) => `attachment.${name}`)
        .sort(),
    );
    const run = await client.readRun(runId);
    expect(Object.keys((run as unknown as { s3_urls: object }).s3_urls)).toHaveLength(4);
  });

  it('are downloaded under their own name', async () => {
    const { headers } = await fetch(urls["attachment.it's (märchen)*%"]?.presigned_url ?? '', { method: 'HEAD' });
    expect(headers.get('content-disposition')).toBe("attachment; filename*=UTF-8''it%27s%20%28m%C3%A4rchen%29%2a%25");
  });
});

describe('a link', () => {
  const ask = async (token: string) => {
    const answer = await fetch(`${apiUrl}/public/attachments/${token}`);
    return [answer.status, ((await answer.json()) as { code: string }).code];
  };
  const signToken = (more: object = {}) =>
    signAttachmentToken(signer, { tenantId: organization.workspaceIds[0], runId, name: 'nothing', ...more });

  it('that this server did not sign is not found', async () => {
    const [body = '', signature = ''] = signToken().split('.');
    const other = Buffer.from(Buffer.from(body, 'base64url').toString().replace('nothing', 'large')).toString(
      'base64url',
    );
    const foreign = createTokenSigner('another secret', 'attachments');
    for (const token of [
      'x',
      `${body}.`,
      `${other}.${signature}`,
      `${body}.${signature.slice(0, -2)}AA`,
      signAttachmentToken(foreign, { tenantId: organization.workspaceIds[0], runId, name: 'nothing' }),
    ]) {
      expect(await ask(token)).toEqual([404, 'NOT_FOUND']);
    }
    expect((await fetch(`${apiUrl}/public/attachments/${signToken()}`)).status).toBe(200);
  });

  it('expires after an hour', async () => {
    const [workspaceId] = organization.workspaceIds;
    const text = JSON.stringify([workspaceId, runId, 'nothing']);
    const nowSeconds = Math.floor(Date.now() / 1_000);
    expect(await ask(signer.sign(text, nowSeconds))).toEqual([403, 'LINK_EXPIRED']);
    const expiry = Number(Buffer.from(signToken(), 'base64url').toString().split('.')[0]);
    expect(expiry - nowSeconds).toBeGreaterThanOrEqual(3_590);
    expect(expiry - nowSeconds).toBeLessThanOrEqual(3_610);
  });

  it.each([
    ['workspace', { tenantId: randomUUID() }],
    ['run', { runId: randomUUID() }],
    ['name', { name: 'every' }],
    ['name', { name: `' OR 1=1 -- \\` }],
  ])('for another %s is not found', async (_, more) => {
    expect(await ask(signToken(more))).toEqual([404, 'NOT_FOUND']);
  });
});

it('deletion of a project deletes its attachments and its feedback', async () => {
  const { server, services } = api;
  const headers = { 'x-api-key': organization.workspaceKeys[0], host: new URL(apiUrl).host };
  const ask = async (method: 'GET' | 'POST' | 'DELETE', url: string, payload?: object) =>
    (await server.inject({ method, url, headers, ...(payload && { payload }) })).json();
  const runs = [];
  for (const projectName of ['leaves', 'stays']) {
    const run = new RunTree({
      name: 'r',
      client,
      project_name: projectName,
      attachments: { a: ['text/plain', Buffer.from(projectName)] },
    });
    await run.postRun();
    await client.awaitPendingTraceBatches();
    const { session_id: projectId, s3_urls } = await ask('GET', `/runs/${run.id}`);
    await ask('POST', '/feedback', { run_id: run.id, key: projectName });
    await ask('POST', '/feedback', { session_id: projectId, key: `the project ${projectName}` });
    runs.push({ projectId, url: s3_urls['attachment.a'].presigned_url as string });
  }
  const [gone, kept] = runs as [(typeof runs)[0], (typeof runs)[0]];
  await ask('DELETE', `/sessions/${gone.projectId}`);
  await deleteProjectRuns(
    { ...services, ...services.system },
    { workspaceId: organization.workspaceIds[0], projectId: gone.projectId },
  );
  expect((await fetch(gone.url)).status).toBe(404);
  expect(await (await fetch(kept.url)).text()).toBe('stays');
  const keys = (await ask('GET', '/feedback')).map(({ key }: { key: string }) => key);
  expect(keys).toEqual(['the project stays', 'stays']);
});

describe('sending attachments', () => {
  const post = async (name: string, content: string, key = organization.workspaceKeys[0]) => {
    const payload = `--cut\r\nContent-Disposition: form-data; name="${name}"\r\nContent-Type: text/plain; length=${content.length}\r\n\r\n${content}\r\n--cut--\r\n`;
    const headers = { 'x-api-key': key, 'content-type': 'multipart/form-data; boundary=cut' };
    return api.server.inject({ method: 'POST', url: '/runs/multipart', headers, payload });
  };
  const readAttachmentText = async (id: string, name: string) =>
    (
      await fetch(
        `${apiUrl}/public/attachments/${signAttachmentToken(signer, { tenantId: organization.workspaceIds[0], runId: id, name })}`,
      )
    ).text();

  it('replaces them if repeated; workspaces are separate', async () => {
    const id = randomUUID();
    expect((await post(`attachment.${id}.a`, 'one')).statusCode).toBe(202);
    expect((await post(`attachment.${id}.a`, 'two')).statusCode).toBe(202);
    expect((await post(`attachment.${id}.a`, 'foreign', organization.workspaceKeys[1])).statusCode).toBe(202);
    await api.settled();
    expect(await readAttachmentText(id, 'a')).toBe('two');
  });

  it.each([
    ['without a name', (id: string) => `attachment.${id}`, 422, 'INVALID_ATTACHMENT'],
    ['with too long a name', (id: string) => `attachment.${id}.${'x'.repeat(256)}`, 422, 'INVALID_ATTACHMENT'],
    ['without a run', () => 'attachment.x.a', 400, 'ALL_RUNS_INVALID'],
  ])('%s is rejected', async (_, name, status, code) => {
    const answer = await post(name(randomUUID()), 'x');
    expect([answer.statusCode, answer.json().code]).toEqual([status, code]);
  });
});
