/** What builds that attack Runlake reach. Runlake runs as root, and the builds under user ids of their own. */
import { randomUUID } from 'node:crypto';
import { chmodSync, linkSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { beforeEach, describe, expect, it } from 'vitest';
import { openProcessAccounts, type ProcessAccounts } from '../../../infra/isolation/process-accounts.ts';
import { createTokenSigner } from '../../../infra/signing/token-signer.ts';
import { SourceBuilder } from '../../../pipelines/deployments/build/build-source.ts';
import { runCommand } from '../../../pipelines/deployments/build/run-command.ts';
import { createSourceReceiver } from '../../../pipelines/deployments/receive-source.ts';
import { createSourceStore } from '../../../pipelines/deployments/source-store.ts';
import { createUpload, receiveUpload } from '../../../pipelines/deployments/uploads.ts';
import { echoSource, packFiles } from '../../api/control-plane/deployment-client.ts';
import { folderForSuite } from '../../folders.ts';
import { forSuite } from '../../for-suite.ts';
import { isLinuxRoot } from '../../house/prerequisites.ts';
import { openDeployments } from './add-deployment.ts';

describe.runIf(isLinuxRoot('attacks of builds'))('a build', () => {
  const dataDir = folderForSuite();
  let lines: string[];

  const depsOf = (ofBuilder = dataDir) => {
    const config = { ...under.config, dataDir: ofBuilder };
    return {
      ...under,
      config,
      sourceStore: createSourceStore(config),
      uploadSigner: createTokenSigner('secret', 'uploads'),
      sourceReceiver: createSourceReceiver(under.config),
    };
  };

  const under = forSuite(() => openDeployments());
  const builder = forSuite(() => new SourceBuilder(depsOf()));
  beforeEach(() => {
    lines = [];
  });

  interface Attack {
    readonly files?: Readonly<Record<string, string>>;
    readonly install: string;
    readonly build?: string;
    readonly path?: string;
  }

  async function build({ files = echoSource('hi'), install, build: command, path }: Attack, by = builder) {
    const { id } = await under.create(randomUUID());
    const { objectPath, token } = await createUpload(depsOf(), under.workspaceId, id);
    await receiveUpload(depsOf(), token, Readable.from([await packFiles(files)]));
    return by.build(
      {
        ...{ revisionId: randomUUID(), deploymentId: id, workspaceId: under.workspaceId, source: 'internal_source' },
        sourceConfig: { install_command: install, build_command: command ?? null },
        sourceRevisionConfig: { source_tarball_path: objectPath, langgraph_config_path: path ?? null },
      },
      { signal: AbortSignal.timeout(120_000), onLog: (text) => lines.push(text) },
    );
  }

  const failed = (reason: RegExp) => ({ code: 'BUILD_FAILED', message: expect.stringMatching(reason) });

  /** A folder that only root can enter, with files that other users could read. */
  function createClosedFolder(count: number): string {
    const folder = join(dataDir, randomUUID());
    mkdirSync(join(folder, 'inner'), { recursive: true, mode: 0o755 });
    for (let index = 0; index < count; index += 1) writeFileSync(join(folder, 'inner', `file-${index}`), 'of root');
    chmodSync(folder, 0o700);
    return folder;
  }

  it('cannot replace a folder by a link while Runlake deletes it', async () => {
    const victim = join(createClosedFolder(200), 'inner');
    // A process that has left the process group swaps the folder when the first of its files is deleted.
    const swap = `
      const { mkdirSync, renameSync, symlinkSync, watch, writeFileSync } = require('node:fs');
      mkdirSync('d');
      for (let index = 0; index < 20000; index += 1) writeFileSync('d/f' + index, '');
      for (let index = 0; index < 200; index += 1) writeFileSync('d/file-' + index, '');
      watch('d', () => { try { renameSync('d', 'e'); symlinkSync('${victim}', 'd'); } finally { process.exit(); } });
      setTimeout(() => process.exit(), 20_000);
      writeFileSync('ready', '');`;
    const install = 'setsid node swap.cjs >/dev/null 2>&1 & while ! test -e ready; do sleep 0.1; done; exit 1';
    await expect(build({ files: { ...echoSource('hi'), 'swap.cjs': swap }, install })).rejects.toMatchObject(
      failed(/ended with code 1/),
    );
    expect(readdirSync(victim)).toHaveLength(200);
  });

  it('runs below a data folder that only Runlake can enter', async () => {
    const parent = mkdtempSync(join(tmpdir(), 'runlake-builds-'));
    const below = new SourceBuilder({ ...depsOf(join(parent, 'data')), sourceStore: depsOf().sourceStore });
    const files = Object.fromEntries(Object.entries(echoSource('hi')).map(([name, text]) => [`sub/${name}`, text]));
    await build({ files, install: 'ls -d sub', build: 'ls langgraph.json', path: 'sub/langgraph.json' }, below);
    expect(lines.join('')).toContain('sub\n');
    expect(lines.join('')).toContain('langgraph.json\n');
    await below.close();
    rmSync(parent, { recursive: true, force: true });
  });

  it('does not run commands in a folder that a link names', async () => {
    const closed = createClosedFolder(1);
    const attack = build({
      install: `ln -s ${join(closed, 'inner')} sub`,
      build: 'cat file-0',
      path: 'sub/langgraph.json',
    });
    await expect(attack).rejects.toMatchObject(failed(/sub is outside of the source/));
    expect(lines.join('')).not.toContain('of root');
  });

  it('changes to the folder of a command with its own rights', async () => {
    const closed = createClosedFolder(1);
    const accounts = (await openProcessAccounts({ readablePaths: [], closed: [] })) as ProcessAccounts;
    const folders = { root: closed, folder: join(closed, 'inner') };
    const command = { program: 'sh', args: ['-c', 'cat file-0'], ...folders, environment: {} };
    const options = { signal: AbortSignal.timeout(60_000), onOutput: (text: string) => lines.push(text) };
    await expect(runCommand({ ...command, account: accounts.take() }, options)).rejects.toMatchObject(
      failed(/ended with code 126/),
    );
    expect(lines.join('')).not.toContain('of root');
    await accounts.close();
  });

  it('does not get files of others that are in the cache of its workspace', async () => {
    await build({ install: 'mkdir -p $npm_config_cache && echo mine > $npm_config_cache/own' });
    const cache = join(dataDir, 'deployments', 'caches', under.workspaceId, 'npm');
    await build({ install: 'cat $npm_config_cache/own; echo again >> $npm_config_cache/own' });
    expect(lines.join('')).toContain('mine');
    const secret = join(dataDir, 'linked.key');
    writeFileSync(secret, 'of root', { mode: 0o600 });
    // Without `fs.protected_hardlinks`, a build could have created this link.
    linkSync(secret, join(cache, 'linked'));
    await build({ install: 'cat $npm_config_cache/linked || true' });
    expect(lines.join('')).not.toContain('of root');
    expect(statSync(secret).uid).toBe(0);
  });

  const nest = `
    for (let depth = 0; depth < 30; depth += 1) {
      require('node:fs').mkdirSync('d'.repeat(200));
      process.chdir('d'.repeat(200));
    }
    require('node:fs').writeFileSync('large', Buffer.alloc(3 * 2 ** 20));`;
  const nestFiles = { ...echoSource('hi'), 'nest.cjs': nest };

  it('cannot keep its files with paths that are too long', async () => {
    const before = readdirSync(join(dataDir, 'deployments', 'builds'));
    const install = `node nest.cjs && cp nest.cjs $HOME/ && cd $HOME && node nest.cjs && exit 1`;
    await expect(build({ files: nestFiles, install })).rejects.toMatchObject(failed(/ended with code 1/));
    expect(readdirSync(join(dataDir, 'deployments', 'builds'))).toEqual(before);
  });

  it('cannot hide files in paths that are too long from the limit of disk space', async () => {
    const own = join(dataDir, 'limited');
    const by = new SourceBuilder({
      ...depsOf(),
      config: { ...under.config, dataDir: own, deploymentsMaxBuildBytes: 2 ** 20 },
    });
    await expect(build({ files: nestFiles, install: 'node nest.cjs' }, by)).rejects.toMatchObject(
      failed(/more disk space than 1048576 bytes/),
    );
    await by.close();
  });
});
