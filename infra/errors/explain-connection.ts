/** Explanation of a failed connection to a server, for the operator who configured the server's address. */
export interface Explanation {
  readonly words: string;
  readonly remedy: string;
}

export interface ServerAddress {
  /** Location of the server as `host:port`, without user and password. */
  readonly location: string;
  /** Name of the setting that contains the address. */
  readonly variable: string;
  /** Instructions for enabling and disabling TLS, as texts that follow the word "use". */
  readonly withTls: string;
  readonly withoutTls: string;
  /** Advice for servers that close unauthenticated connections without a response. It is a complete sentence. */
  readonly authenticationHint?: string;
}

type Rule = readonly [pattern: RegExp, explain: (address: ServerAddress) => Explanation];

const trustRemedy = 'set RUNLAKE_TLS_CA_FILE to a PEM file with the authority that signed it';

/**
 * Rules for explaining an error. They are matched in this order against the codes and messages of the error and its
 * causes.
 */
const rules: readonly Rule[] = [
  [
    /\b(ENOTFOUND|EAI_AGAIN)\b|getaddrinfo EINVAL/,
    ({ location, variable }) => ({
      words: `the host name of ${location} cannot be resolved`,
      remedy: `Correct the host in ${variable}, or the DNS configuration of this machine.`,
    }),
  ],
  [
    /\bECONNREFUSED\b/,
    ({ location, variable }) => ({
      words: `nothing listens at ${location}`,
      remedy: `Start the server, or correct the host and port in ${variable}.`,
    }),
  ],
  [
    /\b(SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER_CERT(_LOCALLY)?)\b|self-signed certificate|unable to (verify|get local issuer)/i,
    ({ location }) => ({
      words: `the certificate of ${location} is signed by an authority that is not trusted`,
      remedy: `If it is the right server, ${trustRemedy}.`,
    }),
  ],
  [
    /\bERR_TLS_CERT_ALTNAME_INVALID\b|altnames/i,
    ({ location, variable }) => ({
      words: `the certificate of ${location} is for another name`,
      remedy: `Use the host name of the certificate in ${variable}.`,
    }),
  ],
  [
    /\bCERT_(HAS_EXPIRED|NOT_YET_VALID)\b/,
    ({ location }) => ({
      words: `the certificate of ${location} has expired or is not valid yet`,
      remedy: 'Renew the certificate, or correct the clock of this machine.',
    }),
  ],
  [
    /wrong version number|packet length too long|\bERR_SSL_\w+|does not support SSL connections/i,
    ({ location, variable, withoutTls }) => ({
      words: `${location} does not speak TLS`,
      remedy: `Use its TLS port in ${variable}, or use ${withoutTls}.`,
    }),
  ],
  [
    /before secure TLS connection was established/i,
    ({ location, withoutTls }) => ({
      words: `${location} closes the connection during the TLS handshake`,
      remedy: `If the server does not speak TLS, use ${withoutTls}; otherwise see its log.`,
    }),
  ],
  [
    /no encryption|\bHPE_\w+|socket hang up|Parse Error|HTTP request to an HTTPS|TLS required/i,
    ({ location, variable, withTls }) => ({
      words: `${location} does not respond like this kind of server; it may expect TLS`,
      remedy: `Use ${withTls}, or correct the port in ${variable}.`,
    }),
  ],
  [
    /\b(ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|TimeoutError)\b|timed? ?out|no answer within/i,
    ({ location, variable }) => ({
      words: `${location} cannot be reached, or does not respond in time`,
      remedy: `Check firewalls, the host and port in ${variable}, and whether TLS is enabled on both sides.`,
    }),
  ],
  [
    /\bECONNRESET\b|closed|terminated unexpectedly|socket disconnected/i,
    ({ location, variable, withTls, authenticationHint: signIn }) => ({
      words: `${location} closes the connection without a response`,
      remedy: `If the server accepts only TLS, use ${withTls}. ${signIn ? `${signIn} ` : ''}Otherwise check the port in ${variable}.`,
    }),
  ],
];

/** Explains why a connection failed. @returns undefined if the error was not caused by the connection itself. */
export function explainConnection(error: unknown, address: ServerAddress): Explanation | undefined {
  const text = collectErrorText(error);
  return rules.find(([pattern]) => pattern.test(text))?.[1](address);
}

/** Returns the names, codes and messages of an error and of all its causes. */
export function collectErrorText(error: unknown): string {
  const signs: string[] = [];
  const queue: unknown[] = [error];
  for (let next = queue.shift(); next !== undefined && signs.length < 60; next = queue.shift()) {
    if (typeof next !== 'object' || next === null) continue;
    const { name, code, type, message, cause, originalError, errors } = next as Record<string, unknown>;
    for (const sign of [name, code, type, message]) if (typeof sign === 'string') signs.push(sign);
    queue.push(
      ...[cause, originalError, ...(Array.isArray(errors) ? errors : [])].filter((each) => each !== undefined),
    );
  }
  return signs.join('\n');
}
