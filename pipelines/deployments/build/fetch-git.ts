/**
 * Fetches one commit of a git repository.
 *
 * Git runs without configuration of the machine, without hooks and submodules, and only with the transports https, http
 * and ssh. The addresses of the host are checked before; redirects to other hosts are refused. Proxies are not used,
 * because a proxy would look up the address again.
 */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ProcessAccount } from '../../../infra/isolation/process-accounts.ts';
import { classifyAddress } from '../../../infra/network/address-range.ts';
import { checkReference, checkRepositoryUrl } from '../check-source.ts';
import { gitTokenName } from '../deployment-secrets.ts';
import { type CommandOptions, runCommand } from './run-command.ts';

export interface GitSource {
  readonly url: string;
  readonly reference: string;
  /** The commit to fetch; unset: the newest commit of the reference. */
  readonly commit?: string | undefined;
  /** Token for https, as the password of the user `x-access-token`. */
  readonly token?: string | undefined;
}

const shaPattern = /^[0-9a-f]{40}(?:[0-9a-f]{24})?$/;

/**
 * Checks out a commit into an empty folder, without its history.
 *
 * @returns the id of the commit.
 * @throws DEPLOYMENT_INVALID, BUILD_FAILED
 */
export async function fetchGit(
  { url, reference, commit, token }: GitSource,
  {
    folder,
    account,
    environment,
    allowPrivate,
    ...options
  }: CommandOptions & {
    readonly folder: string;
    readonly account: ProcessAccount | undefined;
    readonly environment: Readonly<Record<string, string>>;
    readonly allowPrivate: boolean;
  },
): Promise<string> {
  const parsed = checkRepositoryUrl(url);
  checkReference(reference);
  const address = await resolveHost(parsed.hostname, allowPrivate);
  const run = (...args: string[]) =>
    runCommand(
      {
        program: 'git',
        args: ['-c', 'core.hooksPath=/dev/null', '-c', 'http.followRedirects=false', ...args],
        ...{ root: folder, folder },
        account,
        environment: { ...environment, ...buildGitEnvironment(parsed, address, token) },
      },
      options,
    );
  await run('init', '--quiet');
  // Git gets a URL whose host was parsed here, because other parsers may find another host in the given text. The short form
  // of ssh has no such URL: its path is relative to a home.
  const target = parsed.protocol === 'ssh:' ? url : parsed.href;
  const wanted = commit !== undefined && shaPattern.test(commit) ? commit : reference;
  await run('fetch', '--quiet', '--depth=1', '--no-tags', '--no-recurse-submodules', '--', target, wanted).catch(
    (cause: unknown) => {
      if (!isRunlakeError(cause) || cause.code !== 'BUILD_FAILED' || options.signal.aborted) throw cause;
      const access = token === undefined ? `; a private repository needs the secret ${gitTokenName}` : '';
      throw runlakeError('BUILD_FAILED', { reason: `git could not fetch ${wanted} of ${url}${access}` }, { cause });
    },
  );
  const sha = (await run('rev-parse', '--verify', 'FETCH_HEAD^{commit}')).trim();
  if (!shaPattern.test(sha)) throw runlakeError('BUILD_FAILED', { reason: `git has no commit for ${reference}` });
  await run('checkout', '--quiet', '--detach', sha);
  return sha;
}

/** Git reads a token only from its environment, so that it appears in no argument and no file. */
function buildGitEnvironment(url: URL, address: string, token: string | undefined): Record<string, string> {
  const port = url.port || (url.protocol === 'http:' ? '80' : '443');
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const configuration: [string, string][] = [
    // The address that was checked, without another look-up.
    ['http.curloptResolve', `${host}:${port}:${address}`],
    // Overrides the variables of the environment.
    ['http.proxy', ''],
    ['protocol.allow', 'never'],
    ['protocol.https.allow', 'always'],
    ['protocol.http.allow', 'always'],
    ['protocol.ssh.allow', 'always'],
  ];
  if (token !== undefined) {
    const credentials = Buffer.from(`x-access-token:${token}`).toString('base64');
    configuration.push(['http.extraHeader', `Authorization: Basic ${credentials}`]);
  }
  return {
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_TERMINAL_PROMPT: '0',
    GIT_ALLOW_PROTOCOL: 'https:http:ssh',
    GIT_SSH_COMMAND: `ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o HostKeyAlias=${host} -o HostName=${address}`,
    GIT_LFS_SKIP_SMUDGE: '1',
    GIT_CONFIG_COUNT: String(configuration.length),
    ...Object.fromEntries(
      configuration.flatMap(([key, value], index) => [
        [`GIT_CONFIG_KEY_${index}`, key],
        [`GIT_CONFIG_VALUE_${index}`, value],
      ]),
    ),
  };
}

/**
 * Returns an address of the host. @throws BUILD_FAILED if one of its addresses is not public, unless private addresses
 * are allowed.
 */
async function resolveHost(hostname: string, allowPrivate: boolean): Promise<string> {
  const host = hostname.replace(/^\[|\]$/g, '');
  const addresses =
    isIP(host) === 0
      ? await lookup(host, { all: true }).catch((cause: unknown) => {
          throw runlakeError('BUILD_FAILED', { reason: `The host ${host} of the repository is unknown` }, { cause });
        })
      : [{ address: host }];
  for (const { address } of addresses) {
    const range = classifyAddress(address);
    if (range === undefined || (allowPrivate && range.isAllowable)) continue;
    const remedy = range.isAllowable ? '; the operator can allow it with RUNLAKE_ALLOW_PRIVATE_ENDPOINTS' : '';
    throw runlakeError('BUILD_FAILED', {
      reason: `The host ${host} of the repository is not allowed: it is ${range.about}${remedy}`,
    });
  }
  return addresses[0]?.address ?? host;
}
