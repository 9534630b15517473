import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { openDestination } from '../../../pipelines/exports/destinations/open-destination.ts';
import { forSuite } from '../../for-suite.ts';
import { openExportsUnderTest } from './exports-under-test.ts';

const shop = forSuite(() => openExportsUnderTest({ exportsPerWorkspace: 1_000 }));

const bucket = {
  bucket_name: 'some-bucket',
  prefix: '',
  region: null,
  endpoint_url: 'http://127.0.0.1:9',
  include_bucket_in_prefix: true,
  config_kwargs_s3: null,
};

/** Features that the operator allowed when the destination was created, but has disabled in the meantime. */
test.each([
  [
    'private addresses',
    's3',
    true,
    { allowPrivateEndpoints: false },
    /Invalid endpoint: 127\.0\.0\.1 is a loopback address/,
  ],
  ['credentials of the machine', 's3', false, { allowDefaultCredentials: false }, /needs credentials/],
  ['folders', 'local', false, { localExportRoot: undefined }, /type 'local' are disabled/],
] as const)(
  'if %s are no longer allowed, an export fails at once with that reason',
  async (_what, type, sealed, withdrawnConfig, cause) => {
    await shop.store(1, Date.parse('2026-03-05T00:00:00Z') * 1_000);
    const destinationId = randomUUID();
    const credentials = JSON.stringify({ access_key_id: 'some-id', secret_access_key: 'some-secret' });
    await shop.database.execute(
      `INSERT INTO bulk_export_destinations (id, workspace_id, destination_type, display_name, config, sealed_credentials)
     VALUES ($1, $2, $3, 'd', $4, $5)`,
      [
        destinationId,
        shop.workspaceId,
        type,
        type === 's3' ? bucket : { ...bucket, bucket_name: null, endpoint_url: null },
        sealed ? shop.destinations.sealer.seal(credentials, destinationId) : null,
      ],
    );
    const made = await shop.create({ destinationId });
    await shop.start(made.id);
    const [run] = await shop.runs(made.id);
    const config = { ...shop.destinations.config, ...withdrawnConfig };
    const worker = shop.worker({
      openStore: (destination) => openDestination({ ...shop.destinations, config }, destination),
    });
    await worker.attempt(run?.id ?? '');
    const [failed] = await shop.runs(made.id);
    expect(failed).toMatchObject({ status: 'FAILED', errors: { retry_0: expect.stringMatching(cause) } });
    expect(await shop.read(made.id)).toMatchObject({ status: 'FAILED', statusReason: expect.stringMatching(cause) });
  },
);
