import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, it } from 'vitest';
import { configureReplica, PortRange, toStartError } from '../../../api/command-line/configure-replica.ts';
import { createReplicaLogger } from '../../../api/command-line/front-driver.ts';
import { revisionVariable } from '../../../infra/config/graph-environment.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { findFreePorts } from '../../../infra/embedded/free-port.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { createMask } from '../../../pipelines/deployments/mask-secrets.ts';

const spec = {
  ...{
    deploymentId: 'd',
    revisionId: 'r',
    name: 'Name',
    slug: 'name',
    workspaceId: 'w',
    organizationId: 'o',
    number: 1,
  },
  ...{ agentsFile: '/builds/langgraph.json', environment: { KEY: 'value' }, secretReferences: [] },
  resources: { cpu: 1.5, memory_mb: 256 },
};

it('takes ports of the range that are free and not in use by this process', async () => {
  const [port = 0] = await findFreePorts(1);
  const { config } = loadConfig({ RUNLAKE_DEPLOYMENTS_PORT_RANGE: `${port}-${port}` });
  const ports = new PortRange(config.deploymentsPortRange);
  expect(await ports.take()).toBe(port);
  await expect(ports.take()).rejects.toMatchObject({ code: 'DEPLOYMENT_PORTS_USED' });
  ports.release(port);
  const other = createServer().listen(port, '127.0.0.1');
  await once(other, 'listening');
  await expect(ports.take()).rejects.toMatchObject({ code: 'DEPLOYMENT_PORTS_USED' });
  other.close();
  await once(other, 'close');
  expect(await ports.take()).toBe(port);
});

it('gives a replica its deployment, its revision, its secrets and its limits', () => {
  const { config } = loadConfig({
    RUNLAKE_PUBLIC_URL: 'https://runlake.example/api/v1/',
    RUNLAKE_AGENTS_HOST: '0.0.0.0',
  });
  const replica = configureReplica(config, spec, 4_000);
  expect(replica).toMatchObject({
    ...{ agentsFile: spec.agentsFile, agentsDeployment: 'd', agentsHost: '127.0.0.1', agentsPort: 4_000 },
    ...{
      agentsPublicUrl: 'https://runlake.example/deployments/name',
      agentsWorkers: 2,
      agentsWorkerHeapMegabytes: 256,
    },
  });
  expect(replica.agentsRevision).toEqual({ id: 'r', environment: { KEY: 'value' } });
  const passed = { [revisionVariable]: JSON.stringify(replica.agentsRevision) };
  expect(loadConfig(passed).config.agentsRevision).toEqual(replica.agentsRevision);
  const { agentsFile: _, ...image } = spec;
  expect(() => configureReplica(config, image, 4_000)).toThrow(/does not run images/);
});

it('masks secrets in the log of the operator as in that of the revision', () => {
  const logged: unknown[] = [];
  const write = (fields: object, message: string) => void logged.push({ ...fields, message });
  const logger = { debug: write, info: write, warn: write, error: write, child: () => logger };
  const lines: string[] = [];
  const mask = createMask(['first-line\nsecond-line']);
  const replica = createReplicaLogger(logger as never, { mask, onLog: (line) => void lines.push(line) });
  replica.info({ line: 'it is second-line' }, 'graph code wrote');
  replica.child({}).warn({ reason: 'broken at first-line', graph: 'echo' }, 'graph is unusable');
  replica.info({ port: 1 }, 'listening');
  expect(lines).toEqual(['it is ***', 'graph is unusable: broken at ***']);
  expect(logged).toEqual([
    { line: 'it is ***', message: 'graph code wrote' },
    { reason: 'broken at ***', graph: 'echo', message: 'graph is unusable' },
    { port: 1, message: 'listening' },
  ]);
});

it.each(['{', '{}', '{"id": 1, "environment": {}}', '{"id": "r", "environment": {"A": 1}}'])(
  'refuses the revision %j without quoting it',
  (revision) => {
    const load = () => loadConfig({ [revisionVariable]: revision });
    expect(load).toThrow(
      /\n {2}- RUNLAKE_AGENTS_REVISION must be a JSON object with `id` and `environment`, an object of texts\.$/,
    );
  },
);

it('tells causes in the deployment from others', () => {
  const own = runlakeError('GRAPHS_FILE_INVALID', { file: 'f', location: 'graphs', reason: 'none' });
  expect(toStartError(own)).toMatchObject({ code: 'DEPLOYMENT_START_FAILED' });
  expect(toStartError(undefined, 'It was killed')).toMatchObject({ message: 'It was killed.' });
  for (const error of [runlakeError('DATABASE_UNAVAILABLE'), runlakeError('INTERNAL'), new TypeError('bug')])
    expect(toStartError(error)).toBe(error);
});
