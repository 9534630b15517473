import { Link } from '@tanstack/react-router';
import { Button } from '../../components/button.tsx';
import { formatCost, formatCount, formatSeconds } from '../../components/format.ts';
import { Icon } from '../../components/icon.tsx';
import { Status } from '../../components/run-marks.tsx';
import { Value } from '../../components/text.tsx';
import { LongText } from '../../components/values/json-tree.tsx';
import { ValueView } from '../../components/values/value-view.tsx';
import { type ComparedExample, type ExperimentRun, formatScore } from './comparison.ts';
import { labelExperiment } from './experiment-summary.tsx';
import type { Experiment } from './use-comparison.ts';

/** An example with the outputs and feedback of each experiment. */
export function CompareDetail({
  row: { example, cells },
  experiments,
  ids,
  onClose,
}: {
  readonly row: ComparedExample;
  readonly experiments: readonly Experiment[];
  readonly ids: readonly string[];
  readonly onClose: () => void;
}) {
  return (
    <section className="pane-detail" aria-label="Example">
      <header className="row">
        <h2>Example</h2>
        <code className="muted clip">{example.id}</code>
        <span className="spacer" />
        <Button kind="quiet icon" aria-label="Close" title="Close (Escape)" onClick={onClose}>
          <Icon name="close" />
        </Button>
      </header>
      <div className="compare-columns">
        <div className="stack">
          <ValueView title="Inputs" value={example.inputs} />
          {example.outputs ? (
            <ValueView title="Reference" value={example.outputs} />
          ) : (
            <p className="muted">The example has no reference outputs.</p>
          )}
        </div>
        {ids.map((id, index) => (
          <div key={id} className="stack">
            <h3 className="row">
              <span className="badge">{labelExperiment(index)}</span>
              <Value text={experiments.find((each) => each.id === id)?.name ?? id} />
            </h3>
            {(cells[index]?.runs ?? []).length === 0 && <p className="muted">No run of this example.</p>}
            {cells[index]?.runs.map((run, at) => (
              <RunResult
                key={run.id}
                run={run}
                name={at === 0 ? labelExperiment(index) : `${labelExperiment(index)}, run ${at + 1}`}
              />
            ))}
          </div>
        ))}
      </div>
    </section>
  );
}

function RunResult({ run, name }: { readonly run: ExperimentRun; readonly name: string }) {
  const { id, status, error_preview, outputs, latency_seconds, total_tokens, total_cost, feedback_stats } = run;
  return (
    <div className="stack run-result">
      <div className="row wrap">
        <Status status={status} />
        <span className="muted">
          {formatSeconds(latency_seconds)}
          {Boolean(total_tokens) && ` · ${formatCount(total_tokens)} tokens`}
          {Boolean(total_cost) && ` · ${formatCost(total_cost)}`}
        </span>
        <span className="spacer" />
        <Link to="/runs/$runId" params={{ runId: id }}>
          Trace
        </Link>
      </div>
      {Object.keys(feedback_stats ?? {}).length > 0 && (
        <div className="row wrap">
          {Object.entries(feedback_stats ?? {}).map(([key, { avg, values }]) => (
            <span key={key} className="chip">
              <Value
                text={`${key} ${typeof avg === 'number' ? formatScore(avg) : Object.keys(values ?? {}).join(', ')}`}
              />
            </span>
          ))}
        </div>
      )}
      {error_preview && (
        <pre className="error-text">
          <LongText text={error_preview} maxLength={2000} />
        </pre>
      )}
      {outputs !== null && outputs !== undefined && <ValueView title={`Outputs of ${name}`} value={outputs} />}
    </div>
  );
}
