import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import type { Config } from '../../../infra/config/settings.ts';
import { createTokenSigner } from '../../../infra/signing/token-signer.ts';
import { type Builder, createBuilder } from '../../../pipelines/deployments/build/build-source.ts';
import { createSourceStore } from '../../../pipelines/deployments/source-store.ts';
import { createUpload, readSource, receiveUpload } from '../../../pipelines/deployments/uploads.ts';
import { echoSource, packFiles } from '../../api/control-plane/deployment-client.ts';
import { addOrganization } from '../../api/start-api.ts';
import { until } from '../../infra/until.ts';
import { type DeploymentsUnderTest, openDeployments } from './add-deployment.ts';

let under: DeploymentsUnderTest;
let dataDir: string;
let deploymentId: string;
let builder: Builder;
let lines: string[];

/** Sources are in the folder of the suite; builders with other settings build in folders of their own. */
const depsOf = (overrides: Partial<Config> = {}) => {
  const own = Object.keys(overrides).length === 0 ? dataDir : join(dataDir, randomUUID());
  const config = { ...under.config, dataDir: own, ...overrides };
  return {
    ...under,
    config,
    sourceStore: createSourceStore({ ...config, dataDir }),
    uploadSigner: createTokenSigner('secret', 'uploads'),
  };
};

beforeAll(async () => {
  under = await openDeployments();
  dataDir = mkdtempSync(join(tmpdir(), 'runlake-builds-'));
  writeFileSync(join(dataDir, 'secret.key'), 'the secret key', { mode: 0o600 });
  deploymentId = (await under.create('builds')).id;
  builder = createBuilder(depsOf());
});
afterAll(async () => {
  await builder?.close();
  await under?.close();
  rmSync(dataDir, { recursive: true, force: true });
});
beforeEach(() => {
  lines = [];
});

const wait = AbortSignal.timeout(600_000);

async function upload(tarball: Buffer): Promise<string> {
  const { objectPath, token } = await createUpload(depsOf(), under.workspaceId, deploymentId);
  await receiveUpload(depsOf(), token, Readable.from([tarball]));
  return objectPath;
}

interface Source {
  readonly files: Readonly<Record<string, string>>;
  readonly install?: string;
  readonly build?: string;
  readonly path?: string;
}

async function build(
  { files, install = 'true', build: command, path }: Source,
  { by = builder, signal = wait }: { readonly by?: Builder; readonly signal?: AbortSignal } = {},
) {
  const source_tarball_path = await upload(await packFiles(files));
  return by.build(
    {
      ...{ revisionId: randomUUID(), deploymentId, workspaceId: under.workspaceId, source: 'internal_source' },
      sourceConfig: { install_command: install, build_command: command ?? null },
      sourceRevisionConfig: { source_tarball_path, langgraph_config_path: path ?? null },
    },
    { signal, onLog: (text) => lines.push(text) },
  );
}

const failed = (reason: RegExp) => ({ code: 'BUILD_FAILED', message: expect.stringMatching(reason) });

it('builds a source, and returns the same build again', async () => {
  const { agentsFile } = await build({ files: echoSource('hi'), build: 'echo built > built.txt' });
  expect(existsSync(join(agentsFile, '..', 'built.txt'))).toBe(true);
  expect(lines.join('\n')).toContain('echo built > built.txt');
});

it('installs the packages of a lock file', async () => {
  const lock = {
    name: 'echo',
    version: '1.0.0',
    lockfileVersion: 3,
    packages: { '': { name: 'echo', version: '1.0.0' } },
  };
  const files = { ...echoSource('hi'), 'package-lock.json': JSON.stringify(lock) };
  const source_tarball_path = await upload(await packFiles(files));
  const request = {
    ...{ revisionId: randomUUID(), deploymentId, workspaceId: under.workspaceId, source: 'internal_source' as const },
    ...{ sourceConfig: {}, sourceRevisionConfig: { source_tarball_path } },
  };
  await builder.build(request, { signal: wait, onLog: (text) => lines.push(text) });
  expect(lines).toContain('$ npm ci --no-audit --no-fund --no-update-notifier --prefer-offline');
});

it.each<[what: string, source: Source, reason: RegExp]>([
  ['a failing install command', { files: echoSource('hi'), install: 'echo broken >&2; exit 3' }, /ended with code 3/],
  ['a failing build command', { files: echoSource('hi'), build: 'exit 4' }, /ended with code 4/],
  [
    'a missing program',
    { files: { ...echoSource('hi'), 'pnpm-lock.yaml': '' }, install: 'nothing-like-this' },
    /ended with code 127/,
  ],
  ['no langgraph.json', { files: { 'a.js': '' } }, /no file langgraph\.json/],
  [
    'a langgraph.json elsewhere',
    { files: echoSource('hi'), path: 'app/langgraph.json' },
    /no file app\/langgraph\.json/,
  ],
  ['an invalid langgraph.json', { files: { 'langgraph.json': '{"graphs": {}}' } }, /graphs/],
  ['a graph in Python', { files: { 'langgraph.json': '{"graphs": {"agent": "./agent.py:graph"}}' } }, /Python/],
])('refuses %s', async (_what, source, reason) => {
  await expect(build(source)).rejects.toMatchObject(failed(reason));
});

it.each<[what: string, source: Source]>([
  ['langgraph.json', { files: { 'a.js': '' }, build: 'ln -s SECRET langgraph.json' }],
  [
    'the environment file',
    { files: { 'langgraph.json': '{"graphs": {"a": "./a.js:graph"}, "env": "env"}' }, build: 'ln -s SECRET env' },
  ],
])('does not read files of the machine through a link in place of %s', async (_what, source) => {
  const command = source.build!.replace('SECRET', join(dataDir, 'secret.key'));
  await expect(build({ ...source, build: command })).rejects.toMatchObject(failed(/outside of the source/));
  const inEnvironment = {
    'langgraph.json': JSON.stringify({ graphs: { a: './a.js:graph' }, env: join(dataDir, 'secret.key') }),
  };
  await expect(build({ files: inEnvironment })).rejects.toMatchObject(failed(/outside of the source/));
});

it('kills all processes of a build at its timeout', async () => {
  const by = createBuilder(depsOf({ deploymentsBuildTimeoutMs: 1_000 }));
  const mark = `runlake-build-${randomUUID()}`;
  const command = `sh -c 'sleep 600 # ${mark}' & sleep 600`;
  await expect(build({ files: echoSource('hi'), install: command }, { by })).rejects.toMatchObject(
    failed(/longer than 1000 ms/),
  );
  await until('no process to be left', () => !isRunning(mark));
  await by.close();
});

it('kills background processes when the command has ended', async () => {
  const mark = `runlake-build-${randomUUID()}`;
  await build({ files: echoSource('hi'), install: `(sh -c 'sleep 600 # ${mark}' >/dev/null 2>&1 &)` });
  await until('no process to be left', () => !isRunning(mark));
});

function isRunning(mark: string): boolean {
  return execFileSync('ps', ['-eo', 'args'], { encoding: 'utf8' })
    .split('\n')
    .some((line) => line.startsWith('sh -c') && line.includes(mark));
}

it('limits the disk space', async () => {
  const by = createBuilder(depsOf({ deploymentsMaxBuildBytes: 2 ** 20 }));
  const command = 'dd if=/dev/zero of=large bs=1048576 count=3';
  await expect(build({ files: echoSource('hi'), install: command }, { by })).rejects.toMatchObject(
    failed(/more disk space than 1048576 bytes/),
  );
  await by.close();
});

it('ends when its signal is aborted, with the reason of the signal', async () => {
  const controller = new AbortController();
  const building = build({ files: echoSource('hi'), install: 'sleep 600' }, { signal: controller.signal });
  await until('the command to start', () => lines.includes('$ sleep 600'));
  controller.abort(new Error('interrupted'));
  await expect(building).rejects.toThrow('interrupted');
});

it('gives commands neither the environment of Runlake nor the account of the operator', async () => {
  process.env.RUNLAKE_TEST_SECRET_OF_OPERATOR = 'operator secret';
  chmodSync(join(dataDir, 'secret.key'), 0o600);
  const secret = join(dataDir, 'secret.key');
  const { agentsFile } = await build({
    files: echoSource('hi'),
    install: `env > environment.txt; cat ${secret} > copy.txt 2>/dev/null; id -u > user.txt; true`,
  });
  const read = (name: string) => execFileSync('cat', [join(agentsFile, '..', name)], { encoding: 'utf8' });
  expect(read('environment.txt')).not.toMatch(/operator secret|RUNLAKE_/);
  if (process.getuid?.() !== 0) return;
  expect(read('copy.txt')).toBe('');
  expect(Number(read('user.txt'))).toBeGreaterThan(1_000);
});

it('deletes the builds that are not needed', async () => {
  const kept = await build({ files: echoSource('kept') });
  const other = await build({ files: echoSource('other') });
  await builder.deleteExcept(new Set([kept.agentsFile.split('/').at(-2)!]));
  expect([existsSync(kept.agentsFile), existsSync(other.agentsFile)]).toEqual([true, false]);
});

it('a link for an upload works once, and only while it is valid', async () => {
  const deps = depsOf({ deploymentsMaxSourceBytes: 1_024 });
  const { token, objectPath } = await createUpload(deps, under.workspaceId, deploymentId);
  const send = (bytes: number, key = token) => receiveUpload(deps, key, Readable.from([Buffer.alloc(bytes)]));
  await expect(send(10, `${token}x`)).rejects.toMatchObject({ code: 'UPLOAD_LINK_INVALID' });
  await expect(send(2_000)).rejects.toMatchObject({ code: 'SOURCE_TOO_LARGE' });
  await send(1_000);
  await expect(send(1_000)).rejects.toMatchObject({ code: 'UPLOAD_LINK_INVALID' });
  expect(await readSource(deps, deploymentId, objectPath, wait)).toHaveLength(1_000);
  const expired = deps.uploadSigner.sign(randomUUID(), Math.floor(Date.now() / 1_000) - 1);
  await expect(send(10, expired)).rejects.toMatchObject({ code: 'UPLOAD_LINK_INVALID' });
  await (await deps.sourceStore.open()).put(objectPath, Buffer.from('other content'));
  await expect(readSource(deps, deploymentId, objectPath, wait)).rejects.toMatchObject({ code: 'BUILD_FAILED' });
});

it('without isolation, builds only for the organisation of the operator', async () => {
  const by = createBuilder({ ...depsOf({ agentsIsolation: 'off' }) });
  const other = await addOrganization(under.database, 'other');
  const source_tarball_path = await upload(await packFiles(echoSource('hi')));
  const request = (workspaceId: string) => ({
    ...{ revisionId: randomUUID(), deploymentId, workspaceId, source: 'internal_source' as const },
    ...{ sourceConfig: { install_command: 'true' }, sourceRevisionConfig: { source_tarball_path } },
  });
  const options = { signal: wait, onLog: () => undefined };
  await expect(by.build(request(other.workspaceIds[0]), options)).rejects.toMatchObject(failed(/of its operator/));
  expect(await by.build(request(under.workspaceId), options)).toMatchObject({ agentsFile: expect.any(String) });
  await by.close();
});
