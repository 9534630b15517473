import { useVirtualizer } from '@tanstack/react-virtual';
import { memo, useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { formatQuantity, formatSeconds } from '../../components/format.ts';
import { Icon } from '../../components/icon.tsx';
import { RunType, Status } from '../../components/run-marks.tsx';
import { SearchField } from '../../components/search-field.tsx';
import { useShortcuts } from '../../components/shortcuts.tsx';
import { Value } from '../../components/text.tsx';
import { findParent, listVisible, type Tree, type TreeNode } from './tree.ts';

const rowHeight = 28;

/** The runs of a trace as a tree with a waterfall. Only the rows in view are rendered. */
export function RunTree({
  tree,
  selectedId,
  onSelect,
}: {
  readonly tree: Tree;
  readonly selectedId: string;
  readonly onSelect: (runId: string) => void;
}) {
  const scroller = useRef<HTMLDivElement>(null);
  const [collapsed, setCollapsed] = useState<ReadonlySet<string>>(new Set());
  const [search, setSearch] = useState('');
  const visible = useMemo(() => listVisible(tree, collapsed, search), [tree, collapsed, search]);
  const virtual = useVirtualizer({
    count: visible.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 15,
  });
  const selected = tree.indexById.get(selectedId) ?? 0;
  const position = visible.indexOf(selected);
  // Scrolls to the selected run, also when a link opens a run deep in the tree.
  const { scrollToIndex } = virtual;
  useEffect(() => {
    if (position >= 0) scrollToIndex(position, { align: 'auto' });
  }, [position, scrollToIndex]);

  const toggle = useCallback(
    (id: string) =>
      setCollapsed((before) => {
        const next = new Set(before);
        if (!next.delete(id)) next.add(id);
        return next;
      }),
    [],
  );
  const select = (index: number | undefined) => {
    const node = index === undefined ? undefined : tree.nodes[index];
    if (node) onSelect(node.id);
  };
  const step = (by: number) => select(visible[Math.max(0, Math.min(visible.length - 1, position + by))]);
  const node = tree.nodes[selected];
  const hasChildren = node !== undefined && node.end > selected + 1;
  const open = () => {
    if (node && collapsed.has(node.id)) toggle(node.id);
    else if (hasChildren) select(selected + 1);
  };
  const close = () => {
    if (node && hasChildren && !collapsed.has(node.id)) toggle(node.id);
    else select(findParent(tree, selected));
  };
  const nextError = () => {
    const { nodes } = tree;
    for (let at = 1; at <= nodes.length; at++) {
      const index = (selected + at) % nodes.length;
      if (nodes[index]?.run.status === 'ERROR') {
        setCollapsed(new Set());
        setSearch('');
        return select(index);
      }
    }
  };
  useShortcuts({
    j: { label: 'Next run', run: () => step(1) },
    k: { label: 'Previous run', run: () => step(-1) },
    ArrowDown: { label: 'Next run', run: () => step(1) },
    ArrowUp: { label: 'Previous run', run: () => step(-1) },
    ArrowRight: { label: 'Expand, or go to the first run below', run: open },
    ArrowLeft: { label: 'Collapse, or go to the run above', run: close },
    e: { label: 'Next error', run: nextError },
  });
  const spanMs = Math.max(1, tree.endMs - tree.startMs);
  return (
    <section className="run-tree" aria-label="Runs of the trace">
      <div className="row run-tree-head">
        <SearchField label="Find a run" value={search} onChange={setSearch} />
        <span className="muted">
          {visible.length === tree.nodes.length ? '' : `${visible.length} of `}
          {formatQuantity(tree.nodes.length, 'run')}
        </span>
        <span className="spacer" />
        <span className="muted">{formatSeconds(spanMs / 1000)}</span>
      </div>
      <div
        className="run-tree-scroll"
        ref={scroller}
        role="tree"
        aria-label="Runs"
        tabIndex={0}
        aria-activedescendant={position >= 0 ? `run-${selectedId}` : undefined}
      >
        <div role="presentation" className="run-tree-body" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map(({ index, start }) => {
            const at = visible[index] as number;
            const each = tree.nodes[at] as TreeNode;
            return (
              <TreeRow
                key={each.id}
                node={each}
                top={start}
                isSelected={at === selected}
                isCollapsed={collapsed.has(each.id)}
                hasChildren={each.end > at + 1}
                left={(each.startMs - tree.startMs) / spanMs}
                width={((each.endMs ?? Math.max(tree.endMs, each.startMs)) - each.startMs) / spanMs}
                onSelect={onSelect}
                onToggle={toggle}
              />
            );
          })}
        </div>
      </div>
    </section>
  );
}

interface TreeRowProps {
  readonly node: TreeNode;
  readonly top: number;
  readonly isSelected: boolean;
  readonly isCollapsed: boolean;
  readonly hasChildren: boolean;
  /** Start and length of the bar, as shares of the trace. */
  readonly left: number;
  readonly width: number;
  readonly onSelect: (runId: string) => void;
  readonly onToggle: (runId: string) => void;
}

const TreeRow = memo(
  function TreeRow(props: TreeRowProps) {
    const { node, top, isSelected, isCollapsed, hasChildren, left, width, onSelect, onToggle } = props;
    const { run, id, depth } = node;
    const type = run.run_type?.toLowerCase() ?? 'chain';
    return (
      <div
        role="treeitem"
        id={`run-${id}`}
        aria-level={depth + 1}
        aria-selected={isSelected}
        aria-expanded={hasChildren ? !isCollapsed : undefined}
        tabIndex={-1}
        className="tree-row"
        style={{ transform: `translateY(${top}px)` }}
        onClick={() => onSelect(id)}
      >
        <span className="tree-name" style={{ paddingLeft: Math.min(depth, 20) * 14 }}>
          {hasChildren ? (
            <span
              className={isCollapsed ? 'tree-toggle' : 'tree-toggle open'}
              aria-hidden="true"
              onClick={(event) => {
                event.stopPropagation();
                onToggle(id);
              }}
            >
              <Icon name="chevron" />
            </span>
          ) : (
            <span className="tree-toggle" aria-hidden="true" />
          )}
          {run.status !== 'SUCCESS' && <Status status={run.status} isShort />}
          <RunType type={run.run_type} />
          <Value text={run.name || '(no name)'} />
        </span>
        <span className="tree-latency number">{formatSeconds(run.latency_seconds)}</span>
        <span className="tree-bar" aria-hidden="true">
          <span
            className={`bar ${type} ${run.status === 'ERROR' ? 'failed' : ''} ${node.endMs === undefined ? 'running' : ''}`}
            style={{ left: `${left * 100}%`, width: `${width * 100}%` }}
          />
        </span>
      </div>
    );
  },
  (before, after) =>
    before.node === after.node &&
    before.top === after.top &&
    before.isSelected === after.isSelected &&
    before.isCollapsed === after.isCollapsed &&
    before.left === after.left &&
    before.width === after.width,
);
