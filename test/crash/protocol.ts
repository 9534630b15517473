/** How messages are told apart on a connection. */
export interface Protocol {
  /** One divider a connection and direction: what is complete so far, in order. */
  divideRequests(): (data: Buffer) => Buffer[];
  divideAnswers(): (data: Buffer) => Buffer[];
  /** What request and answer have in common; undefined where answers come one by one. */
  requestId(message: Buffer): number | undefined;
  answerId(message: Buffer): number | undefined;
  rewriteAnswer(message: Buffer): Buffer;
}

export interface Deps {
  /** Of the server, and that of the proxy in front of it. */
  readonly from: number;
  readonly to: number;
}

/** As it comes: for HTTP and Postgres, whose clients here have one request a connection under way. */
export function plain(_ports: Deps): Protocol {
  const divide = () => (data: Buffer) => [data];
  return {
    divideRequests: divide,
    divideAnswers: divide,
    requestId: () => undefined,
    answerId: () => undefined,
    rewriteAnswer: (message) => message,
  };
}

/**
 * Kafka's: length, then for requests API key, version and correlation id, for answers the correlation id. Brokers say
 * under which address they want to be reached; here that becomes the proxy's, which takes the same number of bytes.
 */
export function kafkaProtocol({ from, to }: Deps): Protocol {
  const theirs = advertised(from);
  const ours = advertised(to);
  return {
    divideRequests: byLength,
    divideAnswers: byLength,
    requestId: (message) => message.readInt32BE(8),
    answerId: (message) => message.readInt32BE(4),
    rewriteAnswer(message) {
      for (let at = message.indexOf(theirs); at >= 0; at = message.indexOf(theirs, at + 1)) ours.copy(message, at);
      return message;
    },
  };
}

function advertised(port: number): Buffer {
  const bytes = Buffer.alloc(13);
  bytes.write('127.0.0.1');
  bytes.writeInt32BE(port, 9);
  return bytes;
}

function byLength(): (data: Buffer) => Buffer[] {
  let chunks: Buffer[] = [];
  let size = 0;
  return (data) => {
    chunks.push(data);
    size += data.length;
    const messages: Buffer[] = [];
    for (;;) {
      const [first] = chunks;
      if (first === undefined || size < 4) return messages;
      if (first.length < 4) chunks = [Buffer.concat(chunks)];
      const length = 4 + (chunks[0] as Buffer).readInt32BE(0);
      if (size < length) return messages;
      const all = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
      messages.push(Buffer.from(all.subarray(0, length)));
      const rest = all.subarray(length);
      chunks = rest.length > 0 ? [rest] : [];
      size = rest.length;
    }
  };
}

const produceKey = 0;
const offsetCommitKey = 8;

/** A batch of events on its way into `topic`. */
export const isProduce = (topic: string) => (message: Buffer) =>
  message.readInt16BE(4) === produceKey && message.includes(topic);

/** A cut that is written down, as metadata of a commit of the unmoved offset. */
export const isBatchBegun = (message: Buffer) =>
  message.readInt16BE(4) === offsetCommitKey && message.includes('"cut":[');

/** A commit that says that everything before it is done. */
export const isBatchCompleted = (message: Buffer) =>
  message.readInt16BE(4) === offsetCommitKey && message.includes('"next":');

/** A statement, also where it stands in the address of a request. */
export const says = (statement: RegExp) => (message: Buffer) =>
  statement.test(message.toString('latin1', 0, 16_384).replace(/\+|%20/g, ' '));
