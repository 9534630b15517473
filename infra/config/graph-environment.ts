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
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'NO_PROXY',
  'http_proxy',
  'https_proxy',
  'no_proxy',
];

/** Returns the environment for processes that run user code. It contains only the allowed variables of this process. */
export function buildGraphEnvironment(environment: NodeJS.ProcessEnv = process.env): Record<string, string> {
  return Object.fromEntries(
    allowedVariables.flatMap((name) => {
      const value = environment[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}
