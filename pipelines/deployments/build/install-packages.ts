import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { readInside } from './build-folder.ts';

const npmOptions = ['--no-audit', '--no-fund', '--no-update-notifier', '--prefer-offline'];

/** Reads a file in the folder of the lock file. */
type ReadFile = (file: string) => Promise<string | undefined>;

/** Arguments of `npm` that install the packages of a folder with this lock file, in the order of precedence. */
const installers: readonly {
  readonly file: string;
  readonly toArgs: (read: ReadFile) => Promise<readonly string[]>;
}[] = [
  { file: 'pnpm-lock.yaml', toArgs: toPnpmArgs },
  { file: 'yarn.lock', toArgs: toYarnArgs },
  { file: 'package-lock.json', toArgs: async () => ['ci', ...npmOptions] },
  { file: 'npm-shrinkwrap.json', toArgs: async () => ['ci', ...npmOptions] },
];

export interface InstallStep {
  readonly program: string;
  readonly args: readonly string[];
  /** Folder in which the command runs. */
  readonly folder: string;
}

/**
 * Chooses the command that installs the packages of a source: `installCommand` in the root; otherwise by the lock file
 * in the folder of the langgraph.json or else in the root; without a lock file, `npm install` if there is a package.json.
 * npm, which comes with Node, fetches pnpm or Yarn in the version that `packageManager` in the package.json names, or
 * else in the newest version that keeps the form of the lock file.
 *
 * @returns undefined if the source has no packages.
 * @throws BUILD_FAILED if the lock file or the package.json cannot be read.
 */
export async function chooseInstall(
  root: string,
  configFolder: string,
  installCommand: string | null | undefined,
): Promise<InstallStep | undefined> {
  if (installCommand) return { program: 'sh', args: ['-c', installCommand], folder: root };
  for (const folder of new Set([configFolder, root])) {
    const installer = installers.find(({ file }) => existsSync(join(folder, file)));
    if (installer === undefined) continue;
    const read: ReadFile = async (file) =>
      existsSync(join(folder, file)) ? readInside(await realpath(root), join(folder, file), file) : undefined;
    return { program: 'npm', args: await installer.toArgs(read), folder };
  }
  for (const folder of new Set([configFolder, root])) {
    if (existsSync(join(folder, 'package.json'))) return { program: 'npm', args: ['install', ...npmOptions], folder };
  }
  return undefined;
}

async function toPnpmArgs(read: ReadFile): Promise<string[]> {
  const [, format = ''] = /^lockfileVersion: '?(\d+)/m.exec((await read('pnpm-lock.yaml')) ?? '') ?? [];
  const versions: Readonly<Record<string, string>> = { 5: '7', 6: '8' };
  const version = (await readManagerVersion(read, 'pnpm')) ?? versions[format] ?? '10';
  return execute(`pnpm@${version}`, ['pnpm', 'install', '--frozen-lockfile', '--reporter=append-only']);
}

/** From version 2 on, Yarn is another package with other options. Its lock files begin with a field `__metadata`. */
async function toYarnArgs(read: ReadFile): Promise<string[]> {
  const [, format] = /^__metadata:\s+version: (\d+)/m.exec((await read('yarn.lock')) ?? '') ?? [];
  const version =
    (await readManagerVersion(read, 'yarn')) ?? (format === undefined ? '1' : Number(format) < 8 ? '3' : '4');
  if (/^1(?:\.|$)/.test(version))
    return execute(`yarn@${version}`, ['yarn', 'install', '--frozen-lockfile', '--non-interactive']);
  return execute(`@yarnpkg/cli-dist@${version}`, ['yarn', 'install', '--immutable']);
}

function execute(spec: string, command: readonly string[]): string[] {
  return ['exec', '--yes', '--prefer-offline', `--package=${spec}`, '--', ...command];
}

/** Reads the version from `packageManager` in the package.json, such as `pnpm@9.1.0+sha512.…`, if it names `manager`. */
async function readManagerVersion(read: ReadFile, manager: 'pnpm' | 'yarn'): Promise<string | undefined> {
  let text: unknown;
  const json = await read('package.json');
  try {
    text = (JSON.parse(json ?? '{}') as { packageManager?: unknown } | null)?.packageManager;
  } catch (cause) {
    throw runlakeError('BUILD_FAILED', { reason: 'package.json is not valid JSON' }, { cause });
  }
  const [, name, version] = /^(pnpm|yarn)@(\d[\w.-]*)/.exec(String(text)) ?? [];
  return name === manager ? version : undefined;
}
