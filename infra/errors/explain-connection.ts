/** What went wrong between us and a server, in words for whoever set its address. */
export interface Explanation {
  readonly words: string;
  readonly remedy: string;
}

export interface ServerAddress {
  /** `host:port`, without user and password. */
  readonly place: string;
  /** Where the address comes from. */
  readonly variable: string;
  /** How TLS is asked for, and how it is not, in words that follow "use". */
  readonly withTls: string;
  readonly withoutTls: string;
  /** What to do where the server says nothing to strangers, as a sentence. */
  readonly signIn?: string;
}

type Rule = readonly [pattern: RegExp, explain: (address: ServerAddress) => Explanation];

const trust = 'set RUNLAKE_TLS_CA_FILE to a PEM file with the authority that signed it';

/** Matched against codes and texts of an error and its causes, in this order. */
const rules: readonly Rule[] = [
  [
    /\b(ENOTFOUND|EAI_AGAIN)\b|getaddrinfo EINVAL/,
    ({ place, variable }) => ({
      words: `no host has the name in ${place}`,
      remedy: `Correct the host in ${variable}, or the name service of this machine.`,
    }),
  ],
  [
    /\bECONNREFUSED\b/,
    ({ place, variable }) => ({
      words: `nothing listens at ${place}`,
      remedy: `Start the server, or correct host and port in ${variable}.`,
    }),
  ],
  [
    /\b(SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER_CERT(_LOCALLY)?)\b|self-signed certificate|unable to (verify|get local issuer)/i,
    ({ place }) => ({
      words: `the certificate of ${place} is signed by an authority that is not trusted`,
      remedy: `Where the server is the right one, ${trust}.`,
    }),
  ],
  [
    /\bERR_TLS_CERT_ALTNAME_INVALID\b|altnames/i,
    ({ place, variable }) => ({
      words: `the certificate of ${place} is for another name`,
      remedy: `Name the server in ${variable} as its certificate does.`,
    }),
  ],
  [
    /\bCERT_(HAS_EXPIRED|NOT_YET_VALID)\b/,
    ({ place }) => ({
      words: `the certificate of ${place} is not valid at this time`,
      remedy: 'Renew it, or correct the clock of this machine.',
    }),
  ],
  [
    /wrong version number|packet length too long|\bERR_SSL_\w+|does not support SSL connections/i,
    ({ place, variable, withoutTls }) => ({
      words: `${place} does not speak TLS`,
      remedy: `Name its TLS port in ${variable}, or use ${withoutTls}.`,
    }),
  ],
  [
    /before secure TLS connection was established/i,
    ({ place, withoutTls }) => ({
      words: `${place} ends the connection where TLS should begin`,
      remedy: `It may not speak TLS: then use ${withoutTls}. Else see the log of that server.`,
    }),
  ],
  [
    /no encryption|\bHPE_\w+|socket hang up|Parse Error|HTTP request to an HTTPS|TLS required/i,
    ({ place, variable, withTls }) => ({
      words: `${place} does not answer as this kind of server; it may speak TLS`,
      remedy: `Use ${withTls}, or correct the port in ${variable}.`,
    }),
  ],
  [
    /\b(ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|TimeoutError)\b|timed? ?out|no answer within/i,
    ({ place, variable }) => ({
      words: `${place} cannot be reached or does not answer in time`,
      remedy: `Check firewalls on the way, host and port in ${variable}, and whether that port speaks TLS as it is asked to.`,
    }),
  ],
  [
    /\bECONNRESET\b|closed|terminated unexpectedly|socket disconnected/i,
    ({ place, variable, withTls, signIn }) => ({
      words: `${place} ends the connection without an answer`,
      remedy: `It may speak TLS only: use ${withTls}. ${signIn ? `${signIn} ` : ''}Else check the port in ${variable}.`,
    }),
  ],
];

/** @returns undefined where the connection as such is not what is wrong. */
export function explainConnection(error: unknown, address: ServerAddress): Explanation | undefined {
  const text = signsOf(error);
  return rules.find(([pattern]) => pattern.test(text))?.[1](address);
}

/** Names, codes and texts of an error and of everything that led to it. */
export function signsOf(error: unknown): string {
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
