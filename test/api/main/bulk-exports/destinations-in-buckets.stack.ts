import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { sealCredentials } from '../../../../pipelines/exports/destinations/destination.ts';
import { openDestination } from '../../../../pipelines/exports/destinations/open-destination.ts';
import { forSuite } from '../../../for-suite.ts';
import { findStackS3, type S3Identity, type StackS3 } from '../../../infra/objects/s3/s3-of-stack.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const stack = findStackS3();

describe.runIf(stack)('destinations in buckets', () => {
  const s3 = stack as StackS3;
  const routes = '/bulk-exports/destinations';
  const ask = (method: 'GET' | 'POST' | 'PATCH' | 'DELETE', url: string, payload?: object) =>
    api.ask(acme.workspaceKeys[0], method, url, payload);
  const prefix = `api/${randomUUID()}`;

  afterAll(() => s3.close());
  const api = forSuite(() => startApi({ config: { allowPrivateEndpoints: true } }));
  const acme = forSuite(() => addOrganization(api.database, 'acme'));

  const credentials = (identity: S3Identity) => {
    const { accessKeyId, secretAccessKey } = s3.credentials(identity);
    return { access_key_id: accessKeyId, secret_access_key: secretAccessKey };
  };
  const bucket = (config: object = {}, more: object = {}) => ({
    destination_type: 's3',
    display_name: 'bucket',
    config: { bucket_name: s3.bucket, prefix, endpoint_url: s3.endpoint, ...config },
    credentials: credentials('writer'),
    ...more,
  });
  const stored = async () => (await s3.names()).filter((name) => name.startsWith(prefix));
  const opened = (destinationId: string) =>
    openDestination(api.services.destinations, { workspaceId: acme.workspaceIds[0], destinationId });
  /** Asserts that no response and no stored row contains a secret. */
  async function expectSecretsHidden(...responses: unknown[]): Promise<void> {
    const rows = await api.database.query('SELECT * FROM bulk_export_destinations');
    const text = JSON.stringify([responses, rows]);
    for (const identity of ['admin', 'writer', 'reader', 'dropper'] as const) {
      expect(text).not.toContain(s3.credentials(identity).secretAccessKey);
      expect(text).not.toContain(s3.credentials(identity).accessKeyId);
    }
  }

  it('are created after a test write succeeded, and can be opened again', async () => {
    const { status, body } = await ask('POST', routes, bucket());
    expect(status).toBe(200);
    expect(body).toMatchObject({
      destination_type: 's3',
      config: {
        bucket_name: s3.bucket,
        prefix,
        endpoint_url: s3.endpoint,
        include_bucket_in_prefix: true,
        region: null,
      },
      credentials_keys: ['access_key_id', 'secret_access_key'],
    });
    expect(body).not.toHaveProperty('credentials');
    expect(await stored()).toEqual([]);
    const listed = await ask('GET', routes);
    await expectSecretsHidden(body, listed.body, (await ask('GET', `${routes}/${body.id}`)).body);

    const store = await opened(body.id);
    try {
      expect(store.resolvePath('key')).toBe(`${s3.bucket}/${prefix}/key`);
      await store.put('key', Buffer.from('x'));
      expect(await stored()).toEqual([`${prefix}/key`]);
      await store.delete('key');
    } finally {
      await store.close();
    }
    expect((await ask('DELETE', `${routes}/${body.id}`)).status).toBe(200);
    await expect(opened(body.id)).rejects.toMatchObject({ code: 'NOT_FOUND' });
    const [row] = await api.database.query(
      'SELECT sealed_credentials, credentials_keys FROM bulk_export_destinations WHERE id = $1',
      [body.id],
    );
    expect(row).toEqual({ sealed_credentials: null, credentials_keys: [] });
  });

  it('are checked with the stored credentials', async () => {
    const { body } = await ask('POST', routes, bucket());
    const check = async () => (await ask('POST', `${routes}/${body.id}/check`)).body.checks;
    const outcomes = async () => (await check()).map(({ outcome }: { outcome: string }) => outcome);
    expect(await outcomes()).toEqual(['passed', 'passed', 'passed', 'passed']);
    // A key with other permissions, as after a change of its policy.
    const { sealed } = sealCredentials(api.services.destinations.sealer, body.id, credentials('reader'));
    await api.database.execute('UPDATE bulk_export_destinations SET sealed_credentials = $2 WHERE id = $1', [
      body.id,
      sealed,
    ]);
    expect(await outcomes()).toEqual(['passed', 'failed', 'not_run', 'not_run']);
    await expectSecretsHidden(await check());
  });

  it('accept an endpoint that contains the bucket, and return it without the bucket', async () => {
    const config = { bucket_name: null, endpoint_url: `${s3.endpoint}/${s3.bucket}`, include_bucket_in_prefix: false };
    const { status, body } = await ask('POST', routes, bucket(config));
    expect(status).toBe(200);
    const store = await opened(body.id);
    expect(store.resolvePath('key')).toBe(`${prefix}/key`);
    await store.close();
  });

  it.each([
    ['a read-only key', () => ({ credentials: credentials('reader') }), 'DESTINATION_ACCESS_DENIED', /^Access denied/],
    [
      'a wrong secret',
      () => ({ credentials: { ...credentials('writer'), secret_access_key: 'wrong' } }),
      'DESTINATION_ACCESS_DENIED',
      /^Access denied/,
    ],
    [
      'a wrong key',
      () => ({ credentials: { ...credentials('writer'), access_key_id: 'nobody' } }),
      'DESTINATION_KEY_UNKNOWN',
      /^Key ID you provided does not exist/,
    ],
    [
      'a missing bucket',
      () => ({ ...bucket({ bucket_name: 'not-there' }), credentials: credentials('admin') }),
      'DESTINATION_BUCKET_NOT_VALID',
      /^Bucket is not valid/,
    ],
    [
      'an unreachable endpoint',
      () => bucket({ endpoint_url: 'http://no-such-host.invalid' }),
      'DESTINATION_ENDPOINT_INVALID',
      /^Invalid endpoint/,
    ],
  ])('are not created with %s', async (_what, more, code, message) => {
    const answer = await ask('POST', routes, { ...bucket(), ...more() });
    expect(answer).toMatchObject({
      status: 400,
      body: { code, detail: expect.stringMatching(message), remedy: expect.stringMatching(/./) },
    });
    await expectSecretsHidden(answer.body);
  });

  it('accept new credentials after a test write succeeded', async () => {
    const { body: made } = await ask('POST', routes, bucket());
    // Ids are case-insensitive, and credentials are sealed for the id.
    const change = (more: object) => ask('PATCH', `${routes}/${made.id.toUpperCase()}`, more);
    const writes = async () => {
      const store = await opened(made.id);
      try {
        await store.put('key', Buffer.from('x'));
        await store.delete('key');
      } finally {
        await store.close();
      }
    };
    const refused = await change({ display_name: 'renamed', credentials: credentials('reader') });
    expect(refused).toMatchObject({ status: 400, body: { code: 'DESTINATION_ACCESS_DENIED' } });
    // The whole update is rejected, and the old credentials still work.
    expect((await ask('GET', `${routes}/${made.id}`)).body).toEqual(made);
    await writes();
    const rotated = await change({ credentials: credentials('admin') });
    expect(rotated).toMatchObject({
      status: 200,
      body: { display_name: 'bucket', credentials_keys: made.credentials_keys },
    });
    await writes();
    await expectSecretsHidden(refused.body, rotated.body);
  });

  it('reject the credentials of another row', async () => {
    const ids = [];
    for (const identity of ['writer', 'admin'] as const) {
      ids.push((await ask('POST', routes, bucket({}, { credentials: credentials(identity) }))).body.id);
    }
    await api.database.execute(
      `UPDATE bulk_export_destinations SET sealed_credentials =
         (SELECT sealed_credentials FROM bulk_export_destinations WHERE id = $1) WHERE id = $2`,
      ids,
    );
    await expect(opened(ids[1])).rejects.toMatchObject({ code: 'SEAL_BROKEN', status: 500 });
  });
});
