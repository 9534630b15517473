import { describe, expect, it } from 'vitest';
import { FairSlots, type Slot } from '../../../infra/fairness/fair-slots.ts';
import fc from '../../house/fast-check.ts';

const longWait = { maxWaitMs: 60_000 };

function openSlots(slots: number, extraSlots = 0, maxWaiting = 1_000): FairSlots {
  return new FairSlots({ name: 'test', slots, extraSlots, maxWaiting });
}

/** Starts to acquire a slot; `slot` or `error` is set once the microtasks have run. */
function ask(slots: FairSlots, tenant: string, signal?: AbortSignal): { slot?: Slot; error?: unknown } {
  const outcome: { slot?: Slot; error?: unknown } = {};
  slots.acquire(tenant, { ...longWait, signal }).then(
    (slot) => {
      outcome.slot = slot;
    },
    (error: unknown) => {
      outcome.error = error;
    },
  );
  return outcome;
}
const tick = () => new Promise((resolve) => setImmediate(resolve));

describe('FairSlots', () => {
  it('a single tenant may hold all slots, but no overdraft', async () => {
    const slots = openSlots(4, 2);
    const outcome = Array.from({ length: 6 }, () => ask(slots, 'a'));
    await tick();
    expect(outcome.map(({ slot }) => slot !== undefined)).toEqual([true, true, true, true, false, false]);
    expect([slots.held, slots.waiting]).toEqual([4, 2]);
  });

  it('grants an overdraft slot to a tenant below its share while another holds all slots', async () => {
    const slots = openSlots(4, 2);
    for (let n = 0; n < 50; n++) ask(slots, 'a');
    const quiet = Array.from({ length: 3 }, () => ask(slots, 'b'));
    await tick();
    expect(quiet.map(({ slot }) => slot?.isUnderShare)).toEqual([true, true, undefined]);
    expect(slots.held).toBe(6);
  });

  it('grants a released slot to the tenant that holds the fewest', async () => {
    const slots = openSlots(2);
    const first = [ask(slots, 'a'), ask(slots, 'a')];
    const flood = Array.from({ length: 10 }, () => ask(slots, 'a'));
    const quiet = ask(slots, 'b');
    await tick();
    first[0]?.slot?.release();
    await tick();
    expect(quiet.slot).toBeDefined();
    expect(flood.every(({ slot }) => slot === undefined)).toBe(true);
    quiet.slot?.release();
    quiet.slot?.release();
    await tick();
    expect(flood.filter(({ slot }) => slot !== undefined)).toHaveLength(1);
  });

  it('a full queue refuses only its own tenant', async () => {
    const slots = openSlots(1, 0, 2);
    for (let n = 0; n < 3; n++) ask(slots, 'a');
    await tick();
    await expect(slots.acquire('a', longWait)).rejects.toMatchObject({ code: 'OVERLOADED', retryAfterSeconds: 1 });
    ask(slots, 'b');
    expect(slots.waiting).toBe(3);
  });

  it('removes a request that timed out or was cancelled from the queue', async () => {
    const slots = openSlots(1);
    const held = await slots.acquire('a', longWait);
    await expect(slots.acquire('b', { maxWaitMs: 20 })).rejects.toMatchObject({ code: 'OVERLOADED' });
    const controller = new AbortController();
    const cancelled = slots.acquire('c', { ...longWait, signal: controller.signal });
    controller.abort(new Error('gone'));
    await expect(cancelled).rejects.toThrow('gone');
    await expect(slots.acquire('c', { ...longWait, signal: controller.signal })).rejects.toThrow('gone');
    expect(slots.waiting).toBe(0);
    held.release();
    expect(slots.held).toBe(0);
  });
});

/** A simple model with the same rules: lists that are searched linearly. */
class Model {
  readonly held: string[] = [];
  readonly waiting: { id: number; tenant: string }[] = [];
  readonly granted: number[] = [];
  readonly #lastGrant = new Map<string, number>();
  readonly #ids = new Map<number, string>();
  readonly #slots: number;
  readonly #overdraft: number;
  #grants = 0;

  constructor(slots: number, overdraft: number) {
    this.#slots = slots;
    this.#overdraft = overdraft;
  }

  ask(id: number, tenant: string): void {
    this.#ids.set(id, tenant);
    this.waiting.push({ id, tenant });
    this.#serve();
  }

  leave(id: number): void {
    this.waiting.splice(0, this.waiting.length, ...this.waiting.filter((each) => each.id !== id));
    this.#serve();
  }

  release(id: number): void {
    this.held.splice(this.held.indexOf(this.#ids.get(id) as string), 1);
    this.#serve();
  }

  #count(tenant: string): number {
    return this.held.filter((each) => each === tenant).length;
  }

  #serve(): void {
    for (;;) {
      const tenants = new Set([...this.held, ...this.waiting.map(({ tenant }) => tenant)]);
      for (const tenant of this.#lastGrant.keys()) if (!tenants.has(tenant)) this.#lastGrant.delete(tenant);
      const share = Math.max(1, Math.floor(this.#slots / tenants.size));
      const [best] = [...new Set(this.waiting.map(({ tenant }) => tenant))]
        .filter(
          (tenant) =>
            this.held.length < this.#slots ||
            (this.held.length < this.#slots + this.#overdraft && this.#count(tenant) < share),
        )
        .sort(
          (a, b) => this.#count(a) - this.#count(b) || (this.#lastGrant.get(a) ?? 0) - (this.#lastGrant.get(b) ?? 0),
        );
      if (best === undefined) return;
      const index = this.waiting.findIndex(({ tenant }) => tenant === best);
      const [served] = this.waiting.splice(index, 1);
      this.held.push(best);
      this.#grants += 1;
      this.#lastGrant.set(best, this.#grants);
      this.granted.push((served as { id: number }).id);
    }
  }
}

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('ask' as const), tenant: fc.constantFrom('a', 'b', 'c', 'd') }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('release' as const), which: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('abort' as const), which: fc.nat() }) },
);

describe('compared with a model', () => {
  it('grants every slot to the same request as the model', async () => {
    const size = fc.record({ slots: fc.integer({ min: 1, max: 6 }), overdraft: fc.integer({ min: 0, max: 3 }) });
    await fc.assert(
      fc.asyncProperty(size, fc.array(step, { maxLength: 60 }), async ({ slots: count, overdraft }, steps) => {
        const slots = openSlots(count, overdraft);
        const model = new Model(count, overdraft);
        const granted: number[] = [];
        const held = new Map<number, Slot>();
        const waiting = new Map<number, AbortController>();
        for (const [id, next] of steps.entries()) {
          if (next.do === 'ask') {
            const controller = new AbortController();
            waiting.set(id, controller);
            slots.acquire(next.tenant, { ...longWait, signal: controller.signal }).then(
              (slot) => {
                waiting.delete(id);
                held.set(id, slot);
                granted.push(id);
              },
              () => waiting.delete(id),
            );
            model.ask(id, next.tenant);
          } else if (next.do === 'release' && held.size > 0) {
            const chosen = [...held.keys()][next.which % held.size] as number;
            held.get(chosen)?.release();
            held.delete(chosen);
            model.release(chosen);
          } else if (next.do === 'abort' && waiting.size > 0) {
            const chosen = [...waiting.keys()][next.which % waiting.size] as number;
            waiting.get(chosen)?.abort(new Error('gone'));
            model.leave(chosen);
          }
          await tick();
          expect(granted).toEqual(model.granted);
          expect([slots.held, slots.waiting]).toEqual([model.held.length, model.waiting.length]);
        }
      }),
      { numRuns: 200 },
    );
  });
});
