import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmodSync, cpSync, existsSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import type { Config } from '../../../infra/config/settings.ts';
import { createTokenSigner } from '../../../infra/signing/token-signer.ts';
import { type Builder, SourceBuilder } from '../../../pipelines/deployments/build/build-source.ts';
import type { BuildRequest } from '../../../pipelines/deployments/build/build-steps.ts';
import { chooseInstall } from '../../../pipelines/deployments/build/install-packages.ts';
import { createSourceReceiver } from '../../../pipelines/deployments/receive-source.ts';
import { createSourceStore } from '../../../pipelines/deployments/source-store.ts';
import { createUpload, receiveUpload } from '../../../pipelines/deployments/uploads.ts';
import { echoSource, packFiles } from '../../api/control-plane/deployment-client.ts';
import { addOrganization } from '../../api/start-api.ts';
import { folderForSuite } from '../../folders.ts';
import { forSuite } from '../../for-suite.ts';
import { isLinuxRoot } from '../../house/prerequisites.ts';
import { until } from '../../infra/until.ts';
import { openDeployments } from './add-deployment.ts';

const dataDir = folderForSuite();
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
    sourceReceiver: createSourceReceiver(config),
  };
};

const under = forSuite(() => openDeployments());
beforeAll(async () => {
  writeFileSync(join(dataDir, 'secret.key'), 'the secret key', { mode: 0o600 });
  deploymentId = (await under.create('builds')).id;
  builder = new SourceBuilder(depsOf());
});
afterAll(async () => {
  await builder?.close();
});
beforeEach(() => {
  lines = [];
});

const wait = AbortSignal.timeout(600_000);

async function upload(tarball: Buffer, to = deploymentId): Promise<string> {
  const { objectPath, token } = await createUpload(depsOf(), under.workspaceId, to);
  await receiveUpload(depsOf(), token, Readable.from([tarball]));
  return objectPath;
}

interface Source {
  readonly files: Readonly<Record<string, string>>;
  readonly install?: string;
  readonly build?: string;
  readonly path?: string;
}

async function createRequest({ files, install = 'true', build: command, path }: Source): Promise<BuildRequest> {
  // The number of uploads of a deployment that no revision uses is limited.
  const { id } = await under.create(randomUUID());
  const source_tarball_path = await upload(await packFiles(files), id);
  return {
    ...{ revisionId: randomUUID(), deploymentId: id, workspaceId: under.workspaceId, source: 'internal_source' },
    sourceConfig: { install_command: install, build_command: command ?? null },
    sourceRevisionConfig: { source_tarball_path, langgraph_config_path: path ?? null },
  };
}

const buildRequest = (request: BuildRequest, by = builder, signal = wait) =>
  by.build(request, { signal, onLog: (text) => lines.push(text) });

const build = async (source: Source, { by, signal }: { readonly by?: Builder; readonly signal?: AbortSignal } = {}) =>
  buildRequest(await createRequest(source), by, signal);

const failed = (reason: RegExp) => ({ code: 'BUILD_FAILED', message: expect.stringMatching(reason) });

it('builds a source, and returns the same build again', async () => {
  const { agentsFile } = await build({ files: echoSource('hi'), build: 'echo built > built.txt' });
  expect(existsSync(join(agentsFile, '..', 'built.txt'))).toBe(true);
  expect(lines.join('\n')).toContain('echo built > built.txt');
});

it('builds again in a copy of the data folder', async () => {
  const request = await createRequest({ files: echoSource('hi') });
  const buildIn = async (name: string) => {
    const by = new SourceBuilder(depsOf({ dataDir: join(dataDir, name) }));
    return (await buildRequest(request, by).finally(() => by.close())).agentsFile;
  };
  expect(await buildIn('original')).toMatch(join(dataDir, 'original'));
  cpSync(join(dataDir, 'original'), join(dataDir, 'copy'), { recursive: true });
  expect(await buildIn('copy')).toMatch(join(dataDir, 'copy'));
});

/** Lock files of a package `echo` that depends on the folder `lib`, as the package managers have written them. */
const lockFiles = {
  'package-lock.json': JSON.stringify({
    ...{ name: 'echo', version: '1.0.0', lockfileVersion: 3, requires: true },
    packages: {
      '': { name: 'echo', version: '1.0.0', dependencies: { lib: 'file:./lib' } },
      lib: { version: '1.0.0' },
      'node_modules/lib': { resolved: 'lib', link: true },
    },
  }),
  'pnpm-lock.yaml': `lockfileVersion: '9.0'
settings:
  autoInstallPeers: true
  excludeLinksFromLockfile: false
importers:
  .:
    dependencies:
      lib:
        specifier: file:./lib
        version: file:lib
packages:
  lib@file:lib:
    resolution: {directory: lib, type: directory}
snapshots:
  lib@file:lib: {}
`,
  'yarn.lock': '# yarn lockfile v1\n"lib@file:./lib":\n  version "1.0.0"\n',
};

it.each([
  ['package-lock.json', undefined, 'npm ci --no-audit --no-fund --no-update-notifier --prefer-offline'],
  [
    'pnpm-lock.yaml',
    undefined,
    'npm exec --yes --prefer-offline --package=pnpm@10 -- pnpm install --frozen-lockfile --reporter=append-only',
  ],
  [
    'yarn.lock',
    'yarn@1.22.22+sha512.a6b2f7',
    'npm exec --yes --prefer-offline --package=yarn@1.22.22 -- yarn install --frozen-lockfile --non-interactive',
  ],
] as const)('installs the packages of %s', async (lock, packageManager, command) => {
  const files = {
    ...echoSource('hi'),
    'package.json': JSON.stringify({
      ...{ name: 'echo', version: '1.0.0', type: 'module', packageManager },
      dependencies: { lib: 'file:./lib' },
    }),
    'lib/package.json': JSON.stringify({ name: 'lib', version: '1.0.0' }),
    [lock]: lockFiles[lock],
  };
  const { agentsFile } = await build({ files, install: '' });
  expect(lines).toContain(`$ ${command}`);
  expect(existsSync(join(agentsFile, '..', 'node_modules', 'lib', 'package.json'))).toBe(true);
});

it.each<[files: Record<string, string>, expected: RegExp]>([
  [{ 'pnpm-lock.yaml': "lockfileVersion: '6.0'" }, /--package=pnpm@8 -- pnpm install --frozen-lockfile/],
  [{ 'pnpm-lock.yaml': 'lockfileVersion: 5.4' }, /--package=pnpm@7 /],
  [{ 'pnpm-lock.yaml': '', 'package.json': '{"packageManager": "pnpm@9.1.0+sha512.0"}' }, /--package=pnpm@9\.1\.0 /],
  [{ 'yarn.lock': '__metadata:\n  version: 6\n' }, /--package=@yarnpkg\/cli-dist@3 -- yarn install --immutable$/],
  [{ 'yarn.lock': '__metadata:\n  version: 8\n' }, /--package=@yarnpkg\/cli-dist@4 /],
  [{ 'yarn.lock': '', 'package.json': '{"packageManager": "yarn@4.5.0"}' }, /--package=@yarnpkg\/cli-dist@4\.5\.0 /],
  [{ 'yarn.lock': '', 'package.json': '{"packageManager": "pnpm@9.1.0"}' }, /--package=yarn@1 /],
  [{ 'yarn.lock': '', 'package.json': '{"packageManager": "yarn@1 && ls"}' }, /--package=yarn@1 -- /],
  [{ 'package.json': '{}' }, /^install --no-audit/],
])('chooses the version of the package manager: %j', async (files, expected) => {
  const folder = mkdtempSync(join(dataDir, 'choose-'));
  for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), text);
  const install = await chooseInstall(folder, folder, undefined);
  expect(install).toMatchObject({ program: 'npm', folder });
  expect(install?.args.join(' ')).toMatch(expected);
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

it.each(['pnpm-lock.yaml', 'yarn.lock'])('reads %s only in the source', async (file) => {
  const folder = mkdtempSync(join(dataDir, 'choose-'));
  symlinkSync('/dev/zero', join(folder, file));
  await expect(chooseInstall(folder, folder, undefined)).rejects.toMatchObject(failed(/outside of the source/));
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

it.each([
  ['a missing file elsewhere', '/tmp/runlake-no-such-file', 'true'],
  ['a missing file above the source', '../no-such-file', 'true'],
  ['a link to a missing file', 'env', 'ln -s /tmp/runlake-no-such-file env'],
  ['a file below a link to a missing folder', 'folder/env', 'ln -s /tmp/runlake-no-such-folder folder'],
])('does not read files of the machine later on, as an environment file that is %s', async (_what, env, command) => {
  const files = { 'langgraph.json': JSON.stringify({ graphs: { a: './a.js:graph' }, env }) };
  await expect(build({ files, build: command })).rejects.toMatchObject(failed(/outside of the source/));
});

it.each(['.env', 'config/.env'])('builds a source without its environment file %s', async (env) => {
  await build({ files: { 'langgraph.json': JSON.stringify({ graphs: { a: './a.js:graph' }, env }), 'a.js': '' } });
});

it.each([
  [
    'langgraph.json',
    'echo "{\\"graphs\\": {\\"a\\": \\"./a.js:graph\\"}}$(yes " " | head -c 2000000)" > langgraph.json',
  ],
  ['.env', 'yes A=1 | head -c 2000000 > .env'],
])('refuses a large %s', async (file, command) => {
  const files = { 'langgraph.json': '{"graphs": {"a": "./a.js:graph"}, "env": ".env"}' };
  await expect(build({ files, build: command })).rejects.toMatchObject(failed(new RegExp(`${file} is larger than`)));
});

it('shows the end of an output that is too long', async () => {
  const command = 'yes | head -c 8000000; echo "the reason" >&2; exit 3';
  await expect(build({ files: echoSource('hi'), install: command })).rejects.toMatchObject(failed(/ended with code 3/));
  expect(lines.join('\n')).toContain('only its end is shown');
  expect(lines.join('\n')).toMatch(/\nthe reason\s*$/);
  expect(lines.join('').length).toBeLessThan(5 * 1024 ** 2);
});

it('kills all processes of a build at its timeout', async () => {
  const by = new SourceBuilder(depsOf({ deploymentsBuildTimeoutMs: 1_000 }));
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

const isRoot = isLinuxRoot('isolation of builds');
const shared = `runlake-shared-${randomUUID()}`;
const fullFolders = [
  ['its folder', 'large', 'auto'],
  ['its home', '$HOME/large', 'auto'],
  ['the cache of its packages', '$npm_config_cache-large', 'auto'],
  ['its home without isolation', '$HOME/large', 'off'],
  ['its folder for temporary files without isolation', '$TMPDIR/large', 'off'],
  ['a folder of the machine', `/tmp/${shared}/large`, 'auto'],
  ['the memory of the machine', `/dev/shm/${shared}/large`, 'auto'],
] as const;
// Without user ids of its own, files elsewhere are not distinguished from those of Runlake.
const limitedFolders = fullFolders.filter(([, file]) => isRoot || !file.includes(shared));
it.each(limitedFolders)('limits the disk space of a build, in %s', async (_what, file, agentsIsolation) => {
  const by = new SourceBuilder(depsOf({ deploymentsMaxBuildBytes: 2 ** 20, agentsIsolation }));
  // The command would not end by itself.
  const command = `mkdir -p "$(dirname "${file}")"; dd if=/dev/zero of="${file}" bs=1048576 count=3; sleep 600`;
  await expect(build({ files: echoSource('hi'), install: command }, { by })).rejects.toMatchObject(
    failed(/more disk space than 1048576 bytes/),
  );
  await by.close();
  await until('its files to be deleted', () => !existsSync(`/tmp/${shared}`) && !existsSync(`/dev/shm/${shared}`));
});

it('does not build in a folder in which a host of another container builds', async () => {
  const deps = depsOf({ deploymentsBuildTimeoutMs: 60_000 });
  const [by, other] = [new SourceBuilder(deps), new SourceBuilder(deps)];
  await build({ files: echoSource('hi') }, { by });
  // Its process id is unknown here, as that of a process of another container.
  const lock = join(deps.config.dataDir, 'deployments', 'builds', 'lock.1');
  writeFileSync(lock, JSON.stringify({ pid: 999_999_999, identity: 'of-another-container' }));
  const built = build({ files: echoSource('hi') }, { by: other });
  await expect(built).rejects.toMatchObject({ code: 'DATA_FOLDER_IN_USE' });
  await by.close();
  await expect(build({ files: echoSource('hi') }, { by: other })).resolves.toHaveProperty('agentsFile');
  await other.close();
});

it('gives a build a home of its own, also without isolation, and deletes it', async () => {
  const by = new SourceBuilder(depsOf({ agentsIsolation: 'off' }));
  const command = 'touch "$HOME/.npmrc" "$TMPDIR/a" "$TMP/b" "$TEMP/c"; echo "$HOME" > home.txt';
  const { agentsFile } = await build({ files: echoSource('hi'), install: command }, { by });
  const home = execFileSync('cat', [join(agentsFile, '..', 'home.txt')], { encoding: 'utf8' }).trim();
  expect(home).not.toBe(process.env.HOME);
  expect(existsSync(home)).toBe(false);
  await by.close();
});

it('does not count what earlier builds have left in the cache of packages', async () => {
  const by = new SourceBuilder(depsOf({ deploymentsMaxBuildBytes: 2 ** 20 }));
  const command = 'dd if=/dev/zero of="$npm_config_cache-$(date +%N)" bs=524288 count=1';
  for (let turn = 0; turn < 3; turn += 1) await build({ files: echoSource('hi'), install: command }, { by });
  await by.close();
});

it('builds at most as many sources at once as the setting allows, also for replicas', async () => {
  const by = new SourceBuilder(depsOf({ deploymentsBuildsAtOnce: 1 }));
  const marker = join(tmpdir(), `runlake-building-${randomUUID()}`);
  // Fails if another build has created the folder and not yet removed it.
  const command = `mkdir -m 777 ${marker} && sleep 0.3 && rmdir ${marker}`;
  const builds = Array.from({ length: 3 }, () => build({ files: echoSource('hi'), build: command }, { by }));
  const aborted = AbortSignal.abort(new Error('not wanted any more'));
  await expect(build({ files: echoSource('hi') }, { by, signal: aborted })).rejects.toThrow('not wanted any more');
  expect(await Promise.all(builds)).toHaveLength(3);
  await by.close();
});

it('ends when its signal is aborted, with the reason of the signal', async () => {
  const controller = new AbortController();
  const building = build({ files: echoSource('hi'), install: 'sleep 600' }, { signal: controller.signal });
  await until('the command to start', () => lines.includes('$ sleep 600'));
  controller.abort(new Error('interrupted'));
  await expect(building).rejects.toThrow('interrupted');
});

const proxyNames = ['HTTP_PROXY', 'http_proxy', 'HTTPS_PROXY', 'https_proxy', 'ALL_PROXY', 'all_proxy'];

it('gives commands neither the environment of Runlake nor the account of the operator', async () => {
  process.env.RUNLAKE_TEST_SECRET_OF_OPERATOR = 'operator secret';
  for (const name of proxyNames) process.env[name] = 'http://user:password@proxy.example:3128';
  chmodSync(join(dataDir, 'secret.key'), 0o600);
  const secret = join(dataDir, 'secret.key');
  const { agentsFile } = await build({
    files: echoSource('hi'),
    install: `env > environment.txt; cat ${secret} > copy.txt 2>/dev/null; id -u > user.txt; true`,
  }).finally(() => {
    for (const name of proxyNames) delete process.env[name];
  });
  const read = (name: string) => execFileSync('cat', [join(agentsFile, '..', name)], { encoding: 'utf8' });
  expect(read('environment.txt')).not.toMatch(/operator secret|RUNLAKE_/);
  expect(read('environment.txt')).not.toMatch(/proxy/i);
  if (!isRoot) return;
  expect(read('copy.txt')).toBe('');
  expect(Number(read('user.txt'))).toBeGreaterThan(1_000);
});

it('deletes the builds and package caches that are not needed', async () => {
  const kept = await build({ files: echoSource('kept') });
  const other = await build({ files: echoSource('other') });
  const cache = join(dataDir, 'deployments', 'caches', under.workspaceId);
  const builds = new Set([kept.agentsFile.split('/').at(-2)!]);
  await builder.deleteExcept(async () => ({ builds, workspaces: new Set([under.workspaceId]) }));
  expect([existsSync(kept.agentsFile), existsSync(other.agentsFile), existsSync(cache)]).toEqual([true, false, true]);
  await builder.deleteExcept(async () => ({ builds, workspaces: new Set() }));
  expect([existsSync(kept.agentsFile), existsSync(cache)]).toEqual([true, false]);
});

it('without isolation, builds only for the organisation of the operator', async () => {
  const by = new SourceBuilder({ ...depsOf({ agentsIsolation: 'off' }) });
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
