/** What a program needs of the machine it is on, and nothing that may be a secret of ours. */
const allowed = [
  'PATH',
  'HOME',
  'LANG',
  'TZ',
  'NODE_ENV',
  'TMPDIR',
  'NODE_EXTRA_CA_CERTS',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'NO_PROXY',
  'http_proxy',
  'https_proxy',
  'no_proxy',
];

/** The variables of this process that processes with code of others get. */
export function graphEnvironment(environment: NodeJS.ProcessEnv = process.env): Record<string, string> {
  return Object.fromEntries(
    allowed.flatMap((name) => {
      const value = environment[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}
