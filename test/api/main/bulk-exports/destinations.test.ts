import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { folderForSuite } from '../../../folders.ts';
import { forSuite } from '../../../for-suite.ts';
import { addKey, addOrganization, startApi } from '../../start-api.ts';

/** Destinations over HTTP, on local folders; those in buckets are tested in `destinations-in-buckets.stack.ts`. */

const root = folderForSuite();
const routes = '/bulk-exports/destinations';
const ask = (method: 'GET' | 'POST' | 'PATCH' | 'DELETE', url: string, payload?: object) =>
  api.ask(acme.workspaceKeys[0], method, url, payload);

const api = forSuite(() => startApi({ config: { localExportRoot: root, allowDefaultCredentials: false } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const local = (more: object = {}) => ({
  destination_type: 'local',
  display_name: "team's folder-1",
  config: { prefix: 'exports/team' },
  ...more,
});
const create = async (more: object = {}) => (await ask('POST', routes, local(more))).body;

describe('a destination', () => {
  it('is created, read, listed, renamed and deleted', async () => {
    const { status, body: made } = await ask('POST', routes, local());
    expect(status).toBe(200);
    expect(made).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      tenant_id: acme.workspaceIds[0],
      destination_type: 'local',
      display_name: "team's folder-1",
      config: {
        bucket_name: null,
        prefix: 'exports/team',
        region: null,
        endpoint_url: null,
        include_bucket_in_prefix: false,
        config_kwargs_s3: null,
        s3_additional_kwargs: null,
        aws_role_arn: null,
      },
      credentials_keys: [],
      created_at: expect.stringMatching(/Z$/),
      updated_at: made.created_at,
    });
    // The object of the test write is deleted.
    expect(readdirSync(join(root, 'exports/team/tmp'))).toEqual([]);
    expect(await ask('GET', `${routes}/${made.id}`)).toEqual({ status: 200, body: made });
    expect((await ask('GET', routes)).body).toContainEqual(made);

    const renamed = await ask('PATCH', `${routes}/${made.id}`, { display_name: 'other' });
    expect(renamed).toMatchObject({
      status: 200,
      body: { ...made, display_name: 'other', updated_at: expect.any(String) },
    });
    expect(renamed.body.updated_at > made.updated_at).toBe(true);
    for (const nothing of [{}, { display_name: null, credentials: null }]) {
      expect((await ask('PATCH', `${routes}/${made.id}`, nothing)).body.display_name).toBe('other');
    }

    expect((await ask('DELETE', `${routes}/${made.id}`)).status).toBe(200);
    for (const method of ['GET', 'PATCH', 'DELETE'] as const) {
      const gone = await ask(method, `${routes}/${made.id}`, method === 'PATCH' ? { display_name: 'x' } : undefined);
      expect(gone).toMatchObject({ status: 404, body: { detail: 'Bulk export destination not found.' } });
    }
    expect((await ask('GET', routes)).body).not.toContainEqual(expect.objectContaining({ id: made.id }));
  });

  it('is listed in the order of creation, in pages, and only in its workspace', async () => {
    const made: string[] = [];
    for (const name of ['one', 'two', 'three']) made.push((await create({ display_name: name })).id);
    const all = (await ask('GET', routes)).body.map(({ id }: { id: string }) => id);
    expect(all.filter((id: string) => made.includes(id))).toEqual(made);
    const paged: string[] = [];
    for (let offset = 0; offset < all.length; offset += 2) {
      paged.push(...(await ask('GET', `${routes}?limit=2&offset=${offset}`)).body.map(({ id }: { id: string }) => id));
    }
    expect(paged).toEqual(all);
    expect((await api.ask(acme.workspaceKeys[1], 'GET', routes)).body).toEqual([]);
    for (const id of made) expect((await api.ask(acme.workspaceKeys[1], 'GET', `${routes}/${id}`)).status).toBe(404);
  });

  it('requires the permission to manage or to read exports', async () => {
    const owner = { database: api.database, organizationId: acme.id, userId: acme.userId };
    const workspaceIds = [acme.workspaceIds[0]];
    const reader = await addKey({ ...owner, workspaceIds, permissions: ['bulk-exports:read'] });
    const { id } = await create();
    expect((await api.ask(reader, 'GET', `${routes}/${id}`)).status).toBe(200);
    expect((await api.ask(reader, 'POST', routes, local())).status).toBe(403);
    expect((await api.ask(reader, 'PATCH', `${routes}/${id}`, { display_name: 'x' })).status).toBe(403);
    expect((await api.ask(reader, 'DELETE', `${routes}/${id}`)).status).toBe(403);
  });

  it('is checked step by step, also when a step fails', async () => {
    const { id } = await create({ config: { prefix: 'checked' } });
    const check = async (target = id) => {
      const { status, body } = await ask('POST', `${routes}/${target}/check`);
      expect(status).toBe(200);
      return body.checks;
    };
    const passed = ['reach', 'write', 'read', 'delete'].map((step) => ({
      ...{ step, outcome: 'passed', message: null, remedy: null },
    }));
    expect(await check()).toEqual(passed);
    expect(await check(id.toUpperCase())).toEqual(passed);
    expect(readdirSync(join(root, 'checked/tmp'))).toEqual([]);

    // A file in place of the folder.
    rmSync(join(root, 'checked'), { recursive: true });
    writeFileSync(join(root, 'checked'), '');
    expect(await check()).toEqual([
      passed[0],
      { step: 'write', outcome: 'failed', message: expect.stringContaining('step write'), remedy: expect.any(String) },
      { step: 'read', outcome: 'not_run', message: null, remedy: null },
      { step: 'delete', outcome: 'not_run', message: null, remedy: null },
    ]);
    rmSync(join(root, 'checked'));
    expect(await check()).toEqual(passed);
    expect((await api.ask(acme.workspaceKeys[1], 'POST', `${routes}/${id}/check`)).status).toBe(404);
    expect((await ask('POST', `${routes}/${randomUUID()}/check`)).status).toBe(404);
  });

  it('is not deleted while an unfinished export uses it', async () => {
    const { id } = await create();
    const project = await ask('POST', '/sessions', { name: randomUUID() });
    const exportId = randomUUID();
    await api.database.execute(
      `INSERT INTO bulk_exports (id, workspace_id, destination_id, project_id, start_time, end_time, format, format_version,
         compression, status, members_until)
       VALUES ($1, $2, $3, $4, now(), now(), 'Parquet', 'v1', 'none', 'CREATED', now())`,
      [exportId, acme.workspaceIds[0], id, project.body.id],
    );
    const refused = await ask('DELETE', `${routes}/${id}`);
    expect(refused).toMatchObject({ status: 409, body: { code: 'DESTINATION_IN_USE' } });
    expect((await ask('GET', `${routes}/${id}`)).status).toBe(200);
    await api.database.execute("UPDATE bulk_exports SET status = 'COMPLETED', finished_at = now() WHERE id = $1", [
      exportId,
    ]);
    expect((await ask('DELETE', `${routes}/${id}`)).status).toBe(200);
  });
});

const s3 = (config: object = {}, more: object = {}) => ({
  display_name: 'bucket',
  config: { bucket_name: 'bucket', endpoint_url: 'http://8.8.8.8:1', ...config },
  credentials: { access_key_id: 'AKIAIOSFODNN7EXAMPLE', secret_access_key: 'wJalrXUtnFEMI-K7MDENG' },
  ...more,
});

/** Payloads that are rejected before any request is sent. */
const bad: readonly (readonly [what: string, payload: () => object, status: number, expected: RegExp])[] = [
  ['no fields', () => ({}), 422, /display_name/],
  ['an unknown type', () => local({ destination_type: 'gcs' }), 422, /destination_type/],
  ['an empty name', () => local({ display_name: '' }), 422, /display_name/],
  ['a name with invalid characters', () => local({ display_name: 'a/b' }), 422, /display_name/],
  ['a name with a line break', () => local({ display_name: 'a\nb' }), 422, /display_name/],
  ['no config', () => local({ config: undefined }), 422, /config/],
  ['a config that is an array', () => local({ config: [] }), 422, /config/],
  ['a prefix that is a number', () => local({ config: { prefix: 1 } }), 422, /prefix/],
  ['a prefix with NUL', () => local({ config: { prefix: 'a\0b' } }), 422, /prefix/],
  ['a prefix with a line break', () => local({ config: { prefix: 'a\nb' } }), 400, /prefix/],
  ['a prefix with a parent folder', () => local({ config: { prefix: '../other' } }), 400, /prefix/],
  ['a prefix with a parent folder in the middle', () => local({ config: { prefix: 'a/../../b' } }), 400, /prefix/],
  ['a prefix with a dot', () => local({ config: { prefix: './a' } }), 400, /prefix/],
  ['an absolute prefix', () => local({ config: { prefix: '/etc' } }), 400, /prefix/],
  ['a prefix with an empty part', () => local({ config: { prefix: 'a//b' } }), 400, /prefix .*an empty folder name/],
  ['a prefix that is too long', () => local({ config: { prefix: 'ü'.repeat(400) } }), 400, /700 bytes/],
  [
    'a prefix with a folder name that is too long',
    () => local({ config: { prefix: 'x'.repeat(300) } }),
    400,
    /too long/,
  ],
  ['a local destination with a bucket', () => local({ config: { bucket_name: 'bucket' } }), 400, /bucket_name/],
  ['a local destination with an endpoint', () => local({ config: { endpoint_url: 'http://x' } }), 400, /endpoint_url/],
  ['a local destination with credentials', () => local({ credentials: s3().credentials }), 400, /credentials/],
  ['no bucket', () => s3({ bucket_name: null }), 400, /^Bucket is not valid: bucket_name is missing/],
  ['a short bucket', () => s3({ bucket_name: 'ab' }), 422, /bucket_name/],
  ['a long bucket', () => s3({ bucket_name: 'a'.repeat(64) }), 422, /bucket_name/],
  ['a bucket with a slash', () => s3({ bucket_name: 'a/../b' }), 400, /^Bucket is not valid/],
  ['a bucket name that is not a valid host name', () => s3({ bucket_name: 'xn--a' }), 400, /^Bucket is not valid/],
  ['a bucket that is an ARN', () => s3({ bucket_name: 'arn:aws:s3:::bucket' }), 400, /^Bucket is not valid/],
  ['a region that is a host', () => s3({ region: 'evil.example/#' }), 400, /region/],
  ['an endpoint that is not a URL', () => s3({ endpoint_url: 'store' }), 400, /^Invalid endpoint/],
  ['an endpoint with the file scheme', () => s3({ endpoint_url: 'file:///etc/passwd' }), 400, /^Invalid endpoint/],
  [
    'an endpoint with a password',
    () => s3({ endpoint_url: 'http://u:hidden@store.example' }),
    400,
    /^Invalid endpoint/,
  ],
  ['an endpoint with a query', () => s3({ endpoint_url: 'http://store.example/?x=1' }), 400, /^Invalid endpoint/],
  ['a long endpoint', () => s3({ endpoint_url: `http://x.example/${'y'.repeat(2_048)}` }), 422, /endpoint_url/],
  ['a prefix of dots', () => s3({ prefix: 'a/..' }), 400, /prefix/],
  ['an unknown addressing style', () => s3({ config_kwargs_s3: { addressing_style: 'odd' } }), 422, /addressing_style/],
  [
    'unsupported S3 settings',
    () => s3({ config_kwargs_s3: { use_accelerate_endpoint: true } }),
    400,
    /use_accelerate_endpoint/,
  ],
  [
    'unsupported additional settings',
    () => s3({ s3_additional_kwargs: { ACL: 'private' } }),
    400,
    /s3_additional_kwargs/,
  ],
  ['a role', () => s3({ aws_role_arn: 'arn:aws:iam::1:role/x' }), 400, /aws_role_arn/],
  ['no credentials', () => s3({}, { credentials: undefined }), 400, /needs credentials/],
  ['credentials that are null', () => s3({}, { credentials: null }), 400, /needs credentials/],
  ['incomplete credentials', () => s3({}, { credentials: { access_key_id: 'x' } }), 422, /secret_access_key/],
  [
    'an empty secret',
    () => s3({}, { credentials: { access_key_id: 'x', secret_access_key: '' } }),
    422,
    /secret_access/,
  ],
  [
    'a key with a line break',
    () => s3({}, { credentials: { access_key_id: 'x\r\ny: z', secret_access_key: 'z' } }),
    422,
    /access/,
  ],
  [
    'a long secret',
    () => s3({}, { credentials: { access_key_id: 'x', secret_access_key: 'y'.repeat(2_049) } }),
    422,
    /secret/,
  ],
  ...[
    '127.0.0.1',
    'localhost',
    '[::1]',
    '169.254.169.254',
    '10.0.0.1',
    '192.168.0.1',
    '0x7f.1',
    '2130706433',
    '0.0.0.0',
  ].map(
    (host) =>
      [
        `an endpoint at ${host}`,
        () => s3({ endpoint_url: `http://${host}:9000` }),
        400,
        /^Invalid endpoint: .* is .* address/,
      ] as const,
  ),
];

describe('an invalid destination', () => {
  it.each(bad)('%s', async (_what, payload, status, expected) => {
    const before = (await ask('GET', routes)).body;
    const answer = await ask('POST', routes, payload());
    expect(answer.status).toBe(status);
    const { detail } = answer.body;
    expect(typeof detail === 'string' ? detail : JSON.stringify(detail)).toMatch(expected);
    expect(JSON.stringify(answer.body)).not.toMatch(/wJalr|AKIA|hidden/);
    expect((await ask('GET', routes)).body).toEqual(before);
  });

  it.each([
    ['credentials of a local destination', { credentials: s3().credentials }, 400],
    ['a config', { config: { prefix: 'elsewhere' } }, 400],
    ['a type', { destination_type: 's3' }, 400],
    ['an empty name', { display_name: '' }, 422],
    ['incomplete credentials', { credentials: { access_key_id: 'x' } }, 422],
  ])('%s is not updated', async (_what, change, status) => {
    const made = await create();
    expect((await ask('PATCH', `${routes}/${made.id}`, change)).status).toBe(status);
    expect((await ask('GET', `${routes}/${made.id}`)).body).toEqual(made);
  });

  it('responds 422 to a malformed id and 404 to an unknown one', async () => {
    for (const method of ['GET', 'PATCH', 'DELETE'] as const) {
      expect((await ask(method, `${routes}/none`, method === 'PATCH' ? {} : undefined)).status).toBe(422);
      expect((await ask(method, `${routes}/${randomUUID()}`, method === 'PATCH' ? {} : undefined)).status).toBe(404);
    }
  });

  it('rejects a local folder that is a link or a file, or whose root is missing', async () => {
    const outsideFolder = mkdtempSync(join(tmpdir(), 'runlake-outside-'));
    try {
      symlinkSync(outsideFolder, join(root, 'link'));
      writeFileSync(join(root, 'file'), '');
      for (const prefix of ['link', 'link/deeper']) {
        const answer = await ask('POST', routes, local({ config: { prefix } }));
        expect(answer).toMatchObject({ status: 400, body: { code: 'DESTINATION_BUCKET_NOT_VALID' } });
      }
      expect(readdirSync(outsideFolder)).toEqual([]);
      expect(await ask('POST', routes, local({ config: { prefix: 'file/x' } }))).toMatchObject({
        status: 400,
        body: { code: 'DESTINATION_BUCKET_NOT_VALID' },
      });
    } finally {
      rmSync(outsideFolder, { recursive: true, force: true });
    }
    const others = await startApi({ config: { localExportRoot: join(root, 'never-made') } });
    const off = await startApi();
    try {
      for (const [other, code] of [
        [others, 'DESTINATION_BUCKET_NOT_VALID'],
        [off, 'DESTINATION_TYPE_OFF'],
      ] as const) {
        const { workspaceKeys } = await addOrganization(other.database, 'other');
        const answer = await other.ask(workspaceKeys[0], 'POST', routes, local());
        expect(answer).toMatchObject({ status: 400, body: { code } });
      }
      expect(existsSync(join(root, 'never-made'))).toBe(false);
    } finally {
      await others.close();
      await off.close();
    }
    mkdirSync(join(root, 'still-here'), { recursive: true });
  });
});
