/**
 * Order enrichment: one `enrich-order` session per order, all at once.
 *
 * Reads `args.variables.orders_to_enrich`, a list of `{ order_id }`. Answers a list of `{ order_id, status, delayed }` in
 * the same order. With `args.partial` a failed order is answered as `{ order_id, error }` instead of failing the run.
 */
const orders = args.variables.orders_to_enrich;

async function enrich({ order_id }) {
  const answer = JSON.parse(await tools["archmax_workflow_enrich-order"]({ order_id }));
  return { order_id, status: answer.returns.status, delayed: answer.returns.delayed };
}

async function enrichAll() {
  if (!args.partial) return Promise.all(orders.map(enrich));
  const settled = await Promise.allSettled(orders.map(enrich));
  return settled.map(({ status, value, reason }, at) =>
    status === "fulfilled" ? value : { order_id: orders[at].order_id, error: String(reason.message) },
  );
}

await enrichAll();
