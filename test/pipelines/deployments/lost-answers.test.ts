import { expect, it } from 'vitest';
import { openDatabase } from '../../../infra/postgres/pool.ts';
import { createDeployment } from '../../../pipelines/deployments/write-deployment.ts';
import { openFaultProxy } from '../../crash/fault-proxy.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { openDeployments } from './add-deployment.ts';

const under = forSuite(() => openDeployments());
const proxy = forSuite(() => {
  const { hostname: host, port } = new URL(under.stores.databaseUrl);
  return openFaultProxy([{ host, port: Number(port) }]);
});
const viaProxy = forSuite(() => {
  const url = new URL(under.stores.databaseUrl);
  url.port = String(proxy.ports[0]);
  return openDatabase({ url: url.href, logger, timeoutMs: 10_000 });
});

it('a deployment is created once if the connection to Postgres breaks before its commit is answered', async () => {
  let isInserted = false;
  const lost = proxy
    .hold('answered', (message) => {
      isInserted ||= message.includes('INSERT INTO deployments');
      return isInserted && message.includes('COMMIT');
    })
    .then(() => {
      proxy.away(true);
      setTimeout(() => proxy.away(false), 100);
    });
  const created = await createDeployment({ ...under, database: viaProxy }, under.caller, {
    ...{ name: 'once', source: 'external_docker', secrets: [], secretReferences: [] },
    sourceConfig: { deployment_type: 'dev' },
    sourceRevisionConfig: { image_uri: 'registry.example/image:1' },
  });
  await lost;
  const stored = await under.database.query(
    'SELECT id, name, latest_revision_id AS "latestRevisionId" FROM deployments',
  );
  expect(stored).toEqual([{ id: created.id, name: 'once', latestRevisionId: created.latestRevisionId }]);
});
