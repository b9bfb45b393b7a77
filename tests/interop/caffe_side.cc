// Real Caffe reads and writes weights: `Blob::FromProto` and `ToProto` in `NetParameter`s, upgraded as Caffe's own loader upgrades them;
// HDF5 weights by its `util/hdf5` over libhdf5.
// `caffe_side write FOLDER SEED COUNT` makes files, `caffe_side read FILE...` reads some; both print one JSON object as the other sides do.
#include <fstream>
#include <iostream>
#include <random>

#include <boost/crc.hpp>

#include "caffe/blob.hpp"
#include "caffe/util/hdf5.hpp"
#include "caffe/util/io.hpp"
#include "caffe/util/upgrade_proto.hpp"

using caffe::Blob;
using caffe::BlobProto;
using std::string;

// What is told of one tensor; `first` says whether a comma is due.
template <typename T>
void row(std::ostream& out, bool& first, const string& name, const Blob<T>& blob, const T* values) {
  boost::crc_32_type crc;
  crc.process_bytes(values, sizeof(T) * blob.count());
  out << (first ? "" : ", ") << '"' << name << "\": [\"" << (sizeof(T) == 8 ? "float64" : "float32") << "\", [";
  for (int axis = 0; axis < blob.num_axes(); ++axis) out << (axis ? ", " : "") << blob.shape(axis);
  out << "], " << crc.checksum() << ']';
  first = false;
}

template <typename T>
void one(std::ostream& out, bool& first, const string& name, const BlobProto& proto) {
  Blob<T> blob;
  blob.FromProto(proto);
  row(out, first, name, blob, blob.cpu_data());
  if (proto.diff_size() + proto.double_diff_size() > 0) row(out, first, name + ".diff", blob, blob.cpu_diff());
}

void tell(std::ostream& out, const caffe::NetParameter& net) {
  bool first = true;
  out << '{';
  for (const auto& layer : net.layer())
    for (int i = 0; i < layer.blobs_size(); ++i) {
      const BlobProto& proto = layer.blobs(i);
      const string name = layer.name() + '/' + std::to_string(i);
      proto.double_data_size() > 0 ? one<double>(out, first, name, proto) : one<float>(out, first, name, proto);
    }
  out << '}';
}

template <typename T>
void dataset(std::ostream& out, bool& first, const string& name, hid_t group, const string& index) {
  Blob<T> blob;
  caffe::hdf5_load_nd_dataset(group, index.c_str(), 0, kMaxBlobAxes, &blob);
  row(out, first, name, blob, blob.cpu_data());
}

// `Net::CopyTrainedLayersFromHDF5`, with blobs of its own in place of a net's: every layer and number that is there.
void tell_hdf5(std::ostream& out, const string& path) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  CHECK_GE(file, 0) << "Couldn't open " << path;
  bool first = true;
  out << '{';
  for (const string group : {"data", "diff"}) {
    if (!H5Lexists(file, group.c_str(), H5P_DEFAULT)) continue;
    const hid_t layers = H5Gopen2(file, group.c_str(), H5P_DEFAULT);
    for (int i = 0; i < caffe::hdf5_get_num_links(layers); ++i) {
      const string layer = caffe::hdf5_get_name_by_idx(layers, i);
      const hid_t blobs = H5Gopen2(layers, layer.c_str(), H5P_DEFAULT);
      CHECK_GE(blobs, 0) << "Error reading weights from " << path;
      for (int j = 0; j < caffe::hdf5_get_num_links(blobs); ++j) {
        const string index = std::to_string(j), name = layer + '/' + index + (group == "diff" ? ".diff" : "");
        size_t size;
        H5LTget_dataset_info(blobs, index.c_str(), std::vector<hsize_t>(32).data(), nullptr, &size);
        size == 8 ? dataset<double>(out, first, name, blobs, index) : dataset<float>(out, first, name, blobs, index);
      }
      H5Gclose(blobs);
    }
    H5Gclose(layers);
  }
  H5Fclose(file);
  out << '}';
}

template <typename T>
void fill(std::mt19937& random, BlobProto* proto, bool diff) {
  std::vector<int> shape(random() % 5);
  for (int& extent : shape) extent = 1 + random() % 6;
  Blob<T> blob(shape);
  std::normal_distribution<double> normal;
  for (int i = 0; i < blob.count(); ++i) blob.mutable_cpu_data()[i] = normal(random);
  for (int i = 0; i < blob.count(); ++i) blob.mutable_cpu_diff()[i] = normal(random);
  blob.ToProto(proto, diff);
}

caffe::NetParameter made(std::mt19937& random) {
  caffe::NetParameter net;
  net.set_name("net");
  const bool diff = random() % 4 == 0;
  const unsigned layers = 1 + random() % 5;
  for (unsigned i = 0; i < layers; ++i) {
    caffe::LayerParameter* layer = net.add_layer();
    layer->set_name("layer" + std::to_string(i));
    layer->set_type("InnerProduct");
    const unsigned blobs = random() % 4;
    for (unsigned b = 0; b < blobs; ++b)
      random() % 4 == 0 ? fill<double>(random, layer->add_blobs(), diff) : fill<float>(random, layer->add_blobs(), diff);
  }
  return net;
}

string stem(const string& path) {
  const string name = path.substr(path.rfind('/') + 1);
  return name.substr(0, name.find('.'));
}

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  const bool write = string(argv[1]) == "write";
  std::mt19937 random(write ? std::stoul(argv[3]) : 0);
  const int count = write ? std::stoi(argv[4]) : argc - 2;
  std::cout << '{';
  for (int i = 0; i < count; ++i) {
    caffe::NetParameter net;
    string key;
    if (write) {
      net = made(random);
      key = std::to_string(1000 + i).substr(1);
      std::ofstream file(string(argv[2]) + '/' + key + ".caffemodel", std::ios::binary);
      net.SerializeToOstream(&file);
    } else if (string(argv[2 + i]).find(".h5") != string::npos) {
      std::cout << (i ? ", " : "") << '"' << stem(argv[2 + i]) << "\": ";
      tell_hdf5(std::cout, argv[2 + i]);
      continue;
    } else {
      key = stem(argv[2 + i]);
      caffe::ReadNetParamsFromBinaryFileOrDie(argv[2 + i], &net);
    }
    std::cout << (i ? ", " : "") << '"' << key << "\": ";
    tell(std::cout, net);
  }
  std::cout << "}\n";
}
