/* SPDX-License-Identifier: MIT */
// Gloo behind a C face: connecting all ranks, and each op as one blocking call. Errors come back as sentences, never as
// exceptions. Gloo has no reduce-scatter of this kind, so there is a ring here: after n-1 steps, in each of which a
// rank passes a partial sum to the right and adds its own part to the one from the left, slice r is whole at rank r.
#include <cstdio>
#include <cstring>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <sched.h>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include "common/core/numeric.h"
#include "common/comm/internal.h"

namespace
{

// ---- reductions: one rounding an addition ----

struct fp32_element {
    using stored = float;
    static float load(float x) { return x; }
    static float store(float x) { return x; }
};
struct int32_element {
    using stored = int32_t;
    static int64_t load(int32_t x) { return x; }
    static int32_t store(int64_t x) { return static_cast<int32_t>(static_cast<uint32_t>(x)); } // wraps
};
struct bf16_element {
    using stored = uint16_t;
    static float load(uint16_t x) { return bf16_to_float(x); }
    static uint16_t store(float x) { return bf16_from_float(x); }
};
struct fp16_element {
    using stored = uint16_t;
    static float load(uint16_t x) { return fp16_to_float(x); }
    static uint16_t store(float x) { return fp16_from_float(x); }
};

template <typename E>
void sum_into(void *out, const void *a, const void *b, size_t n)
{
    using T = typename E::stored;
    T *to = static_cast<T *>(out);
    const T *x = static_cast<const T *>(a), *y = static_cast<const T *>(b);
    for (size_t i = 0; i < n; i++)
        to[i] = E::store(E::load(x[i]) + E::load(y[i]));
}

template <typename E>
void max_into(void *out, const void *a, const void *b, size_t n)
{
    using T = typename E::stored;
    T *to = static_cast<T *>(out);
    const T *x = static_cast<const T *>(a), *y = static_cast<const T *>(b);
    for (size_t i = 0; i < n; i++)
        to[i] = E::load(x[i]) < E::load(y[i]) ? y[i] : x[i];
}

using reducer = void (*)(void *, const void *, const void *, size_t);

reducer reducer_of(const comm_call &k)
{
    static const reducer sums[] = {sum_into<fp32_element>, sum_into<bf16_element>, sum_into<fp16_element>,
                                   sum_into<int32_element>};
    static const reducer maxima[] = {max_into<fp32_element>, max_into<bf16_element>, max_into<fp16_element>,
                                     max_into<int32_element>};
    return k.r == COMM_SUM ? sums[k.t] : maxima[k.t];
}

// ---- connecting ----

// Gloo wants a key-value store to exchange addresses. This one lives on the control channel: in each round every rank
// of the job gives one entry, or says that it has none now, or none any more; rounds go on until no rank has any more.
// So nobody is left waiting, whichever rank fails, and ranks that are no members take part, too.
enum { ENTRY_SET = 1, ENTRY_NONE, ENTRY_DONE };

struct entry { // followed by the value
    uint32_t kind, value_bytes;
    char key[56];
};

class exchange_store : public gloo::rendezvous::Store
{
  public:
    exchange_store(launch *l, int group)
        : launch_(l), group_(std::to_string(group) + "/"),
          value_bytes_(256 * static_cast<size_t>(launch_size(l))) // the TCP transport takes 136 a rank
    {
    }

    void set(const std::string &key, const std::vector<char> &value) override
    {
        const std::string ours = group_ + key; // groups connect at the same time
        if (value.size() > value_bytes_ || ours.size() >= sizeof entry::key)
            throw std::runtime_error("Gloo has longer addresses than are provided for here");
        round(ENTRY_SET, ours, value);
    }

    std::vector<char> get(const std::string &key) override
    {
        while (!entries_.count(group_ + key))
            if (!round(ENTRY_NONE, "", {}))
                throw std::runtime_error("a rank did not give its address");
        return entries_[group_ + key];
    }

    void wait(const std::vector<std::string> &keys) override
    {
        for (const std::string &key : keys)
            get(key);
    }
    void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &) override { wait(keys); }

    void finish()
    {
        while (round(ENTRY_DONE, "", {}))
            ;
    }

  private:
    // False when every other rank is done.
    bool round(uint32_t kind, const std::string &key, const std::vector<char> &value)
    {
        const size_t bytes = sizeof(entry) + value_bytes_, ranks = static_cast<size_t>(launch_size(launch_));
        std::vector<char> mine(bytes), all(ranks * bytes);
        entry e = {};
        bool more = false;
        e.kind = kind;
        e.value_bytes = static_cast<uint32_t>(value.size());
        std::memcpy(e.key, key.c_str(), key.size());
        std::memcpy(mine.data(), &e, sizeof e);
        if (!value.empty())
            std::memcpy(mine.data() + sizeof e, value.data(), value.size());
        launch_gather(launch_, "gloo addresses", mine.data(), bytes, all.data());
        for (size_t r = 0; r < ranks; r++) {
            const char *from = all.data() + r * bytes;
            std::memcpy(&e, from, sizeof e);
            if (e.kind == ENTRY_SET)
                entries_[e.key].assign(from + sizeof e, from + sizeof e + e.value_bytes);
            more =
                more || (e.kind != ENTRY_DONE && (r != static_cast<size_t>(launch_rank(launch_)) || kind == ENTRY_SET));
        }
        return more;
    }

    launch *launch_;
    std::string group_;
    size_t value_bytes_;
    std::map<std::string, std::vector<char>> entries_;
};

} // namespace

struct gloo_link {
    std::shared_ptr<gloo::rendezvous::Context> context;
};

namespace
{

// Gloo's thread polls without a pause while the thread that it has just preempted holds a connection's lock. It inherits
// the policy of the thread that creates the device, and under SCHED_BATCH it does not preempt.
std::shared_ptr<gloo::transport::Device> create_device(const gloo::transport::tcp::attr &where)
{
    return std::async(std::launch::async,
                      [&] {
                          const sched_param no_priority = {};
                          sched_setscheduler(0, SCHED_BATCH, &no_priority); // slower where it is refused
                          return gloo::transport::tcp::CreateDevice(where);
                      })
        .get();
}

void connect(gloo_link *g, launch *l, exchange_store &store, int rank, int size)
{
    gloo::transport::tcp::attr where;
    where.hostname = launch_address(l);
    auto device = create_device(where);
    g->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    // The coordinator knows better than Gloo who is to blame, so it must be the first to lose patience.
    const double patience_s = launch_timeout_s(l) > 0 ? 60 + 2 * launch_timeout_s(l) : 86400;
    g->context->setTimeout(std::chrono::milliseconds(static_cast<int64_t>(1e3 * patience_s)));
    g->context->connectFullMesh(store, device);
}

// ---- reduce-scatter ----

constexpr uint8_t reduce_scatter_prefix = 0x60, pairwise_prefix = 0x61; // Gloo's own are up to 0x08
constexpr size_t block_bytes = 1 << 20;
constexpr int lanes = 2; // blocks under way at once: while one is added up, the other is on the wire

// One block of every slice on its way around the ring.
struct lane {
    std::vector<char> partial[2]; // one is received while the other is sent
    std::unique_ptr<gloo::transport::UnboundBuffer> out, in[2];
};

class ring
{
  public:
    ring(gloo::Context &context, const comm_call &k)
        : context_(context), k_(k), reduce_(reducer_of(k)), element_(comm_dtype_bytes(k.t)),
          block_(std::min(k.count, block_bytes / element_))
    {
        const size_t all = static_cast<size_t>(context.size) * k.count * element_;
        for (lane &l : lanes_) {
            // Gloo only reads what is sent.
            l.out = context.createUnboundBuffer(const_cast<void *>(k.send), all);
            for (int i = 0; i < 2; i++) {
                l.partial[i].resize(block_ * element_);
                l.in[i] = context.createUnboundBuffer(l.partial[i].data(), l.partial[i].size());
            }
        }
    }

    void run()
    {
        for (size_t first = 0; first < k_.count; first += lanes * block_)
            for (int step = 0; step < context_.size - 1; step++) {
                for (int i = 0; i < lanes; i++)
                    post(i, first, step);
                for (int i = 0; i < lanes; i++)
                    take(i, first, step);
            }
    }

  private:
    size_t start(int i, size_t first) const { return first + static_cast<size_t>(i) * block_; }
    size_t length(int i, size_t first) const
    {
        const size_t from = start(i, first);
        return from < k_.count ? std::min(block_, k_.count - from) : 0;
    }
    size_t offset(int slice, size_t from) const { return (static_cast<size_t>(slice) * k_.count + from) * element_; }
    int slice(int back) const { return (context_.rank + 2 * context_.size - back) % context_.size; }

    void post(int i, size_t first, int step)
    {
        const size_t bytes = length(i, first) * element_;
        const uint64_t slot = gloo::Slot::build(reduce_scatter_prefix, k_.tag) + static_cast<uint8_t>(i);
        const int right = slice(-1), left = slice(1);
        if (!bytes)
            return;
        lanes_[i].in[step % 2]->recv(left, slot, 0, bytes);
        if (step == 0)
            lanes_[i].out->send(right, slot, offset(slice(1), start(i, first)), bytes);
        else
            lanes_[i].in[(step - 1) % 2]->send(right, slot, 0, bytes);
    }

    void take(int i, size_t first, int step)
    {
        const size_t n = length(i, first), from = start(i, first);
        if (!n)
            return;
        lane &l = lanes_[i];
        l.in[step % 2]->waitRecv();
        const bool last = step == context_.size - 2;
        const char *own = static_cast<const char *>(k_.send) + offset(slice(2 + step), from);
        char *partial = l.partial[step % 2].data();
        reduce_(last ? static_cast<char *>(k_.recv) + from * element_ : partial, partial, own, n);
        if (step == 0)
            l.out->waitSend();
        else
            l.in[(step - 1) % 2]->waitSend();
    }

    gloo::Context &context_;
    const comm_call &k_;
    reducer reduce_;
    size_t element_, block_;
    lane lanes_[lanes];
};

// ---- sends and receives ----

// A send waits until its receive is posted, so all are posted before the first is waited for.
class exchange
{
  public:
    exchange(gloo::Context &context, const comm_call *calls, int n) : calls_(calls, calls + n)
    {
        for (const comm_call &k : calls_)
            buffers_.push_back(context.createUnboundBuffer(k.op == COMM_SEND ? const_cast<void *>(k.send)
                                                                             : k.recv, // Gloo only reads what is sent
                                                           k.count * comm_dtype_bytes(k.t)));
    }

    void run()
    {
        for (const bool send : {false, true})
            for (size_t i = 0; i < calls_.size(); i++)
                if (send == (calls_[i].op == COMM_SEND))
                    post(i);
        for (size_t i = 0; i < calls_.size(); i++)
            if (calls_[i].op == COMM_SEND)
                buffers_[i]->waitSend();
            else
                buffers_[i]->waitRecv();
    }

  private:
    void post(size_t i)
    {
        const comm_call &k = calls_[i];
        const uint64_t slot = gloo::Slot::build(pairwise_prefix, k.tag);
        if (k.op == COMM_SEND)
            buffers_[i]->send(k.root, slot);
        else
            buffers_[i]->recv(k.root, slot);
    }

    std::vector<comm_call> calls_;
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> buffers_;
};

// ---- ops ----

// T has the element's size, which is all that Gloo wants to know of it; the reduction knows the rest.
template <typename T, typename Options>
void set_buffers(Options &o, const comm_call &k, size_t send, size_t recv, bool in_place)
{
    if (!in_place)
        o.setInput(static_cast<T *>(const_cast<void *>(k.send)), send); // it only reads
    o.setOutput(static_cast<T *>(k.recv), recv);
    o.setTag(k.tag);
}

template <typename T>
void run_op(gloo_link *g, const comm_call &k, std::unique_ptr<ring> &keep)
{
    const size_t size = static_cast<size_t>(g->context->size);
    const size_t bytes = k.count * sizeof(T);
    if (k.op == COMM_ALL_REDUCE) {
        gloo::AllreduceOptions o(g->context);
        set_buffers<T>(o, k, k.count, k.count, k.send == k.recv);
        o.setReduceFunction(reducer_of(k));
        gloo::allreduce(o);
    } else if (k.op == COMM_ALL_GATHER) {
        gloo::AllgatherOptions o(g->context);
        const char *own = static_cast<char *>(k.recv) + static_cast<size_t>(g->context->rank) * bytes;
        set_buffers<T>(o, k, k.count, size * k.count, k.send == own);
        gloo::allgather(o);
    } else if (k.op == COMM_BROADCAST) {
        gloo::BroadcastOptions o(g->context);
        const bool root = g->context->rank == k.root;
        set_buffers<T>(o, k, k.count, k.count, !root || k.send == k.recv);
        o.setRoot(k.root);
        gloo::broadcast(o);
    } else if (k.op == COMM_REDUCE) {
        gloo::ReduceOptions o(g->context);
        set_buffers<T>(o, k, k.count, k.count, k.send == k.recv);
        o.setReduceFunction(reducer_of(k));
        o.setRoot(k.root);
        gloo::reduce(o);
    } else if (k.op == COMM_ALL_TO_ALL) {
        gloo::AlltoallOptions o(g->context);
        set_buffers<T>(o, k, size * k.count, size * k.count, false);
        gloo::alltoall(o);
    } else if (k.op == COMM_BARRIER) {
        gloo::BarrierOptions o(g->context);
        o.setTag(k.tag);
        gloo::barrier(o);
    } else {
        keep = std::make_unique<ring>(*g->context, k);
        keep->run();
    }
}

void say(char *why, size_t why_bytes, const char *what)
{
    std::snprintf(why, why_bytes, "%s", what);
}

} // namespace

void gloo_link_idle(launch *l)
{
    exchange_store(l, 0).finish();
}

gloo_link *gloo_link_open(launch *l, int group, int rank, int size, char *why, size_t why_bytes)
{
    auto g = std::make_unique<gloo_link>();
    exchange_store store(l, group);
    bool done = false;
    try {
        connect(g.get(), l, store, rank, size);
        done = true;
    } catch (const std::exception &e) {
        say(why, why_bytes, e.what());
    }
    store.finish();
    return done ? g.release() : nullptr;
}

void gloo_link_close(gloo_link *g)
{
    g->context->closeConnections();
    delete g;
}

bool gloo_link_run(gloo_link *g, const comm_call *call, char *why, size_t why_bytes)
{
    // Outlives the exception: Gloo's thread may still write to its buffers until the process ends.
    auto *keep = new std::unique_ptr<ring>;
    try {
        if (comm_dtype_bytes(call->t) == 4)
            run_op<uint32_t>(g, *call, *keep);
        else
            run_op<uint16_t>(g, *call, *keep);
    } catch (const std::exception &e) {
        say(why, why_bytes, e.what());
        return false;
    }
    delete keep;
    return true;
}

bool gloo_link_exchange(gloo_link *g, const comm_call *calls, int n, char *why, size_t why_bytes)
{
    auto *keep = new std::unique_ptr<exchange>; // as above
    try {
        *keep = std::make_unique<exchange>(*g->context, calls, n);
        (*keep)->run();
    } catch (const std::exception &e) {
        say(why, why_bytes, e.what());
        return false;
    }
    delete keep;
    return true;
}
