/**
 * The traces that the demo sends, planned beforehand so that the results can be checked against them. The numbers are
 * the same in each execution; only the days differ.
 */

export interface Sender {
  readonly name: string;
  readonly email: string;
  readonly keyDescription: string;
  readonly workspace: string;
}

export interface PlannedTrace {
  readonly sender: Sender;
  readonly project: string;
  readonly root: Step;
  readonly question: string;
  readonly startMs: number;
  readonly durationMs: number;
  /** A leaf of the trace fails, and the trace with it. */
  readonly fails: boolean;
  /** Its end is sent after all other traces. */
  readonly endsLate: boolean;
}

/** A run of a kind of trace: its share of its parent's time, and its child runs. */
export interface Step {
  readonly name: string;
  readonly type: 'chain' | 'llm' | 'tool' | 'retriever' | 'parser';
  readonly share: number;
  readonly steps?: readonly Step[];
}

export const secondWorkspace = 'Research';
export const demoDays = 21;
export const dayMs = 24 * 3_600_000;
export const hourMs = 3_600_000;

const ana: Sender = { name: 'ana', email: 'ana@example.com', keyDescription: 'Ana, support bot', workspace: 'Default' };
const anaCi: Sender = { ...ana, keyDescription: 'Ana, CI' };
const ben: Sender = { name: 'ben', email: 'ben@example.com', keyDescription: 'Ben, invoices', workspace: 'Default' };
const chloe: Sender = {
  name: 'chloe',
  email: 'chloe@example.com',
  keyDescription: 'Chloe, experiments',
  workspace: secondWorkspace,
};
export const senders: readonly Sender[] = [ana, anaCi, ben, chloe];

interface Kind {
  readonly project: string;
  readonly senders: readonly Sender[];
  /** Share of all traces. */
  readonly weight: number;
  readonly root: Step;
  readonly questions: readonly string[];
}

const kinds: readonly Kind[] = [
  {
    project: 'support-bot',
    senders: [ana, ana, ben],
    weight: 5,
    questions: ['Where is my parcel?', 'How do I reset my password?', 'Can I pay by invoice?'],
    root: {
      name: 'answer ticket',
      type: 'chain',
      share: 1,
      steps: [
        { name: 'search handbook', type: 'retriever', share: 0.15 },
        {
          name: 'reply agent',
          type: 'chain',
          share: 0.75,
          steps: [
            { name: 'plan', type: 'llm', share: 0.3 },
            { name: 'look up order', type: 'tool', share: 0.2 },
            { name: 'write reply', type: 'llm', share: 0.4 },
          ],
        },
      ],
    },
  },
  {
    project: 'code-review',
    senders: [anaCi],
    weight: 3,
    questions: ['Review pull request 812', 'Review pull request 815'],
    root: {
      name: 'review change',
      type: 'chain',
      share: 1,
      steps: [
        { name: 'read diff', type: 'tool', share: 0.1 },
        { name: 'find faults', type: 'llm', share: 0.8 },
      ],
    },
  },
  {
    project: 'invoice-reader',
    senders: [ben],
    weight: 2,
    questions: ['Invoice 2209', 'Invoice 2210', 'Invoice 2211'],
    root: {
      name: 'read invoice',
      type: 'chain',
      share: 1,
      steps: [
        { name: 'recognise text', type: 'tool', share: 0.4 },
        { name: 'extract fields', type: 'llm', share: 0.45 },
        { name: 'check totals', type: 'parser', share: 0.05 },
      ],
    },
  },
  {
    project: 'experiments',
    senders: [chloe],
    weight: 2,
    questions: ['Which city is larger?', 'Name three prime numbers.'],
    root: { name: 'ask model', type: 'llm', share: 1 },
  },
];

/** Pseudo-random numbers between 0 and 1, determined by the seed (mulberry32). */
export function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Plans `count` traces over the {@link demoDays} days until `nowMs`, in the order of their start. */
export function planTraces(count: number, nowMs: number): PlannedTrace[] {
  const random = randomNumbers(20);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const lots = kinds.flatMap((kind) => Array<Kind>(kind.weight).fill(kind));
  const firstDayMs = firstDay(nowMs);
  const traces = Array.from({ length: count }, (): PlannedTrace => {
    const kind = pick(lots);
    const dayStartMs = firstDayMs + Math.floor(random() * demoDays) * dayMs;
    const dayEndMs = Math.min(dayStartMs + dayMs, nowMs);
    return {
      sender: pick(kind.senders),
      project: kind.project,
      root: kind.root,
      question: pick(kind.questions),
      startMs: Math.floor(dayStartMs + random() * (dayEndMs - dayStartMs)),
      durationMs: Math.floor(800 + random() * 6_000),
      fails: random() < 0.04,
      endsLate: random() < 0.06,
    };
  });
  return traces.sort((a, b) => a.startMs - b.startMs);
}

/** Midnight UTC of the first day of the demo. */
export function firstDay(nowMs: number): number {
  return Math.floor(nowMs / dayMs) * dayMs - (demoDays - 1) * dayMs;
}
