/**
 * Environment variables that describe the machine. The list must not contain variables that may hold secrets of
 * Runlake.
 */
const allowedVariables = [
  'PATH',
  'HOME',
  'LANG',
  'TZ',
  'NODE_ENV',
  'TMPDIR',
  'NODE_EXTRA_CA_CERTS',
  'NO_PROXY',
  'no_proxy',
];

/** Variables with the URL of a proxy, which may contain the password of the operator. */
const proxyVariables = ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy'];

/**
 * Returns the environment for processes that run user code. It contains only the allowed variables of this process, and
 * proxies without user names and passwords.
 */
export function buildGraphEnvironment(): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const name of [...allowedVariables, ...proxyVariables]) {
    const value = process.env[name];
    if (value !== undefined) environment[name] = proxyVariables.includes(name) ? removeUserInfo(value) : value;
  }
  return environment;
}

/** Removes user name and password from the URL of a proxy, whose scheme may be missing. Programs differ in what ends a password. */
function removeUserInfo(url: string): string {
  return url.replace(/^([a-z][a-z\d+.-]*:\/\/)?.*@/is, '$1');
}

const buildVariables: ReadonlySet<string> = new Set(['PATH', 'LANG', 'TZ', 'NODE_ENV', 'NODE_EXTRA_CA_CERTS']);

/**
 * Returns the environment for the commands of a build. It contains no proxy, which may contain a password, and would
 * replace the checked address of a repository.
 *
 * @param home folder of the build for everything that it writes outside of its source.
 */
export function buildCommandEnvironment(home: string): Record<string, string> {
  const described = Object.entries(buildGraphEnvironment()).filter(([name]) => buildVariables.has(name));
  return { ...Object.fromEntries(described), HOME: home, TMPDIR: home, TMP: home, TEMP: home };
}

/** The revision of a deployment that an agent server runs. */
export interface AgentsRevision {
  readonly id: string;
  /** Environment variables of graph code. They override `env` of the langgraph.json. */
  readonly environment: Readonly<Record<string, string>>;
}

/**
 * Variable in which a host passes the revision to the agent server of a replica. It is not a setting: only the control
 * plane knows the revisions.
 */
export const revisionVariable = 'RUNLAKE_AGENTS_REVISION';

/** Parses the value of {@link revisionVariable}. @returns undefined if it is not valid */
export function parseAgentsRevision(text: string): AgentsRevision | undefined {
  try {
    const { id, environment } = JSON.parse(text) as Partial<AgentsRevision>;
    const values = Object.values(environment ?? {});
    return typeof id === 'string' && environment && values.every((value) => typeof value === 'string')
      ? { id, environment }
      : undefined;
  } catch {
    return undefined;
  }
}
